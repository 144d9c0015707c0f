"""Converts a messages request (Anthropic's format) to a Converse request.

Both formats have the same parts, so a chat request is first converted to a messages request. The names of Converse's
fields are those of AWS's service model (`bedrock-runtime`, 2023-09-30).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import orjson

from gateway.errors import BadRequest

Block = dict[str, Any]

_INFERENCE = {"temperature": "temperature", "top_p": "topP", "stop_sequences": "stopSequences"}
_CLAUDES = ("top_k", "thinking")
"""Names of the fields that are sent to the model unchanged in `additionalModelRequestFields`."""
_CHOICES = {"auto": "auto", "any": "any"}
_FORMATS = {
    "application/pdf": "pdf",
    "text/plain": "txt",
    "text/markdown": "md",
    "text/html": "html",
    "text/csv": "csv",
}
_IMAGES = frozenset({"png", "jpeg", "gif", "webp"})
_UNNAMED = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")
"""Matches the characters that are not allowed in the name of a document."""


def converse(message: dict[str, Any], limit: int | None) -> dict[str, Any]:
    """The Converse request for `message`, a messages request. `limit`: maximum output tokens; None: the model's default
    limit.

    Raises BadRequest for content that Converse does not support.
    """
    try:
        return _converse(message, limit)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadRequest("messages: a part has a value of the wrong type for this model.", param="messages") from error


def _converse(message: dict[str, Any], limit: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"messages": [_turn(turn, index) for index, turn in enumerate(message["messages"])]}
    if system := message.get("system"):
        found["system"] = [{"text": system}] if type(system) is str else [*_marked(system, _text)]
    inference = {ours: message[name] for name, ours in _INFERENCE.items() if name in message}
    if limit is not None:
        inference["maxTokens"] = limit
    if inference:
        found["inferenceConfig"] = inference
    if tools := _tools(message):
        found["toolConfig"] = tools
    if form := _output(message.get("output_config")):
        found["outputConfig"] = form
    if beside := {name: message[name] for name in _CLAUDES if name in message}:
        found["additionalModelRequestFields"] = beside
    return found


def _turn(turn: dict[str, Any], index: int) -> dict[str, Any]:
    content = turn["content"]
    if type(content) is str:
        return {"role": turn["role"], "content": [{"text": content}]}

    def block(each: Block) -> Block:
        return _block(each, f"messages[{index}].content")

    return {"role": turn["role"], "content": [*_marked(content, block)]}


def _marked(blocks: Iterable[Block], convert: Any) -> Iterable[Block]:
    """The converted blocks. A cache point is added after each block that has `cache_control`. `convert`: converts one
    block."""
    for block in blocks:
        yield convert(block)
        if mark := block.get("cache_control"):
            yield _point(mark)


def _point(mark: Any) -> Block:
    long = type(mark) is dict and mark.get("ttl") == "1h"
    return {"cachePoint": {"type": "default", **({"ttl": "1h"} if long else {})}}


def _text(block: Block) -> Block:
    return {"text": block["text"]}


def _block(block: Block, where: str) -> Block:
    match block["type"]:
        case "text":
            return _text(block)
        case "image":
            return _image(block["source"], where)
        case "document":
            return _document(block, where)
        case "tool_use":
            return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
        case "tool_result":
            return _result(block, where)
        case "thinking":
            signed = {"text": block["thinking"], "signature": block["signature"]}
            return {"reasoningContent": {"reasoningText": signed}}
        case "redacted_thinking":
            return {"reasoningContent": {"redactedContent": block["data"]}}
    raise BadRequest(f"{where}: Bedrock's Converse takes no {block['type']}.", param=where)


def _image(source: Block, where: str) -> Block:
    form = str(source.get("media_type", "")).removeprefix("image/")
    if source["type"] != "base64" or form not in _IMAGES:
        raise BadRequest(f"{where}: an image for this model must be a data URL: png, jpeg, gif or webp.", param=where)
    return {"image": {"format": form, "source": {"bytes": source["data"]}}}


def _document(block: Block, where: str) -> Block:
    source = block["source"]
    form = _FORMATS.get(source.get("media_type", ""))
    if source["type"] not in ("base64", "text") or form is None:
        raise BadRequest(f"{where}: a file for this model must be a PDF or text as a data URL.", param=where)
    data = source["data"] if source["type"] == "base64" else b64encode(source["data"].encode()).decode()
    name = _UNNAMED.sub(" ", str(block.get("title") or "")).strip()[:200]
    return {"document": {"format": form, "name": " ".join(name.split()) or "document", "source": {"bytes": data}}}


def _result(block: Block, where: str) -> Block:
    content: str | list[Block] = block.get("content") or ""
    parts = [{"text": content}] if isinstance(content, str) else [_block(each, where) for each in content]
    failed = {"status": "error"} if block.get("is_error") else {}
    return {"toolResult": {"toolUseId": block["tool_use_id"], "content": parts, **failed}}


def _tools(message: dict[str, Any]) -> dict[str, Any] | None:
    """The tools and the tool choice. None for the choice `none`, which Converse does not have.

    If the conversation contains calls, the tools are sent in spite of the choice `none`.
    """
    choice = message.get("tool_choice") or {}
    if not (offered := message.get("tools")) or (choice.get("type") == "none" and not _called(message)):
        return None
    found: dict[str, Any] = {"tools": [*_marked(offered, _tool)]}
    if name := _CHOICES.get(choice.get("type", "")):
        found["toolChoice"] = {name: {}}
    elif choice.get("type") == "tool":
        found["toolChoice"] = {"tool": {"name": choice["name"]}}
    return found


def _called(message: dict[str, Any]) -> bool:
    contents = (turn["content"] for turn in message["messages"] if type(turn["content"]) is list)
    return any(block["type"] in ("tool_use", "tool_result") for content in contents for block in content)


def _tool(tool: Block) -> Block:
    if "input_schema" not in tool:
        raise BadRequest(f"tools: Bedrock's Converse takes functions, not {tool.get('type')}.", param="tools")
    found = {"name": tool["name"], "inputSchema": {"json": tool["input_schema"]}}
    if tool.get("description"):
        found["description"] = tool["description"]
    return {"toolSpec": {**found, "strict": True} if tool.get("strict") else found}


def _output(config: Any) -> dict[str, Any] | None:
    form = config.get("format") if type(config) is dict else None
    found: dict[str, Any] = {}
    if type(form) is dict and form.get("type") == "json_schema":
        schema = {"name": "answer", "schema": orjson.dumps(form["schema"]).decode()}
        found["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    if type(config) is dict and config.get("effort"):
        found["effort"] = config["effort"]
    return found or None
