"""Parses a Converse request. The request is first converted to Anthropic's messages format, which has the same parts,
and then to a chat request."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from gateway.dialects.anthropic_messages.request import parse_prompt
from gateway.dialects.openai_chat import request as chat_request
from gateway.dialects.requests.fields import Wanted, check
from gateway.dialects.translate.messages_to_chat.translator import MessagesToChat
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest

MESSAGES, BEGAN = "messages", "began"
"""Two keys in `CompletionRequest.echoed`. The values are the body in Anthropic's format, and the time at which the
request arrived (monotonic seconds)."""

EXTRAS = "converse"
"""A key in `CompletionRequest.body`. Its value has the fields for the model that chat does not have. They may change
the answer, so they are part of the cache's key."""

Block = dict[str, Any]

_WANTED = {
    "messages": Wanted((list,), "an array"),
    "system": Wanted((list,), "an array"),
    "inferenceConfig": Wanted((dict,), "an object"),
    "toolConfig": Wanted((dict,), "an object"),
    "outputConfig": Wanted((dict,), "an object"),
    "additionalModelRequestFields": Wanted((dict,), "an object"),
}
_WANTED_INFERENCE = {
    "maxTokens": Wanted((int,), "a whole number of at least 1", 1),
    "temperature": Wanted((int, float), "a number"),
    "topP": Wanted((int, float), "a number"),
    "stopSequences": Wanted((list,), "an array of strings"),
}
_INFERENCE = {
    "maxTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "stopSequences": "stop_sequences",
}
_REFUSED = ("guardrailConfig", "promptVariables")
_CLAUDES = ("thinking", "top_k")
"""Names of the fields in `additionalModelRequestFields` that a Claude model reads. Only Converse gets the others."""
_TEXTS = frozenset({"txt", "md", "html", "csv"})
"""Formats of documents whose content is text."""


def parse(
    body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], *, model: str, stream: bool
) -> CompletionRequest:
    """Parse a request. Raises BadRequest, with the name of the field, if the gateway cannot translate the request."""
    fields = chat_request.load_object(body)
    check(fields, _WANTED)
    for name in _REFUSED:
        if fields.get(name):
            raise BadRequest(f"{name} is kept at AWS, for one account: leave it out.", param=name)
    try:
        given = {"model": model, **_messages(fields), **({"stream": True} if stream else {})}
        asked = parse_prompt(orjson.dumps(given), request_id, controls, headers)
        chat = MessagesToChat().chat(asked, None)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadRequest("The body has a value of the wrong type in messages, system or toolConfig.") from error
    if stream:
        chat["stream_options"] = {"include_usage": True}
    parsed = chat_request.parse(orjson.dumps(chat), request_id, controls, headers)
    more = fields.get("additionalModelRequestFields") or {}
    extras = {name: value for name, value in more.items() if name != "thinking"}
    if extras:
        parsed.body = {**parsed.body, EXTRAS: extras}
    parsed.dialect, parsed.echoed = "bedrock_converse", {MESSAGES: asked.body, BEGAN: time.monotonic()}
    return parsed


def _messages(fields: dict[str, Any]) -> dict[str, Any]:
    """The body of the request in Anthropic's format."""
    inference, more = fields.get("inferenceConfig") or {}, fields.get("additionalModelRequestFields") or {}
    check(inference, _WANTED_INFERENCE)
    found: dict[str, Any] = {"messages": [_turn(*pair) for pair in enumerate(fields.get("messages") or [])]}
    if system := _marked(fields.get("system") or [], _system, "system"):
        found["system"] = system
    found |= {ours: inference[name] for name, ours in _INFERENCE.items() if inference.get(name) is not None}
    found |= {name: more[name] for name in _CLAUDES if more.get(name) is not None}
    return {**found, **_tools(fields.get("toolConfig") or {}), **_output(fields.get("outputConfig") or {})}


def _turn(index: int, turn: dict[str, Any]) -> dict[str, Any]:
    blocks = _marked(turn["content"], _block, f"messages[{index}].content")
    return {"role": turn["role"], "content": blocks}


def _marked(blocks: list[Block], convert: Callable[[Block, str], Block], where: str) -> list[Block]:
    """Convert the blocks. A cache point becomes `cache_control` of the block before it. `convert`: converts one block
    at the given location. `where`: the location of `blocks` in the request."""
    found: list[Block] = []
    for index, block in enumerate(blocks):
        if "cachePoint" not in block:
            found.append(convert(block, f"{where}[{index}]"))
        elif found:
            long = block["cachePoint"].get("ttl") == "1h"
            found[-1]["cache_control"] = {"type": "ephemeral", **({"ttl": "1h"} if long else {})}
    return found


def _system(block: Block, where: str) -> Block:
    if type(block.get("text")) is not str:
        raise _unknown(block, where)
    return {"type": "text", "text": block["text"]}


def _block(block: Block, where: str) -> Block:
    match next(iter(block), ""):
        case "text":
            return {"type": "text", "text": block["text"]}
        case "image":
            return _image(block["image"], where)
        case "document":
            return _document(block["document"], where)
        case "toolUse":
            call = block["toolUse"]
            return {"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": call.get("input") or {}}
        case "toolResult":
            return _result(block["toolResult"], where)
        case "reasoningContent":
            return _thought(block["reasoningContent"])
        case "citationsContent":
            said = block["citationsContent"].get("content") or ()
            return {"type": "text", "text": "".join(part.get("text") or "" for part in said)}
    raise _unknown(block, where)


def _unknown(block: Block, where: str) -> BadRequest:
    kind = next(iter(block), "nothing")
    told = "text, image, document, toolUse, toolResult and reasoningContent are translated."
    return BadRequest(f"{where} has {kind}; {told}", param=where)


def _image(image: Block, where: str) -> Block:
    source = {"type": "base64", "media_type": f"image/{image['format']}", "data": _bytes(image, where)}
    return {"type": "image", "source": source}


def _document(document: Block, where: str) -> Block:
    form, source = document["format"], document["source"]
    if form == "pdf":
        found = {"type": "base64", "media_type": "application/pdf", "data": _bytes(document, where)}
    elif form in _TEXTS:
        text = source["text"] if "text" in source else b64decode(_bytes(document, where)).decode()
        found = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        raise BadRequest(f"{where}: a document must be pdf, txt, md, html or csv.", param=where)
    return {"type": "document", "source": found, "title": document.get("name") or "document"}


def _bytes(holder: Block, where: str) -> str:
    data = holder["source"].get("bytes")
    if type(data) is not str:
        raise BadRequest(f"{where} must have its bytes; what is kept at AWS is not read.", param=where)
    return data


def _result(result: Block, where: str) -> Block:
    parts = [
        {"type": "text", "text": orjson.dumps(part["json"]).decode()} if "json" in part else _block(part, where)
        for part in result.get("content") or ()
    ]
    failed = {"is_error": True} if result.get("status") == "error" else {}
    return {"type": "tool_result", "tool_use_id": result["toolUseId"], "content": parts, **failed}


def _thought(thought: Block) -> Block:
    if "redactedContent" in thought:
        return {"type": "redacted_thinking", "data": thought["redactedContent"]}
    said = thought["reasoningText"]
    return {"type": "thinking", "thinking": said.get("text") or "", "signature": said.get("signature") or ""}


def _tools(config: dict[str, Any]) -> dict[str, Any]:
    tools = _marked(config.get("tools") or [], _tool, "toolConfig.tools")
    if not tools:
        return {}
    choice = config.get("toolChoice") or {}
    kind = next(iter(choice), "auto")
    named = {"name": choice["tool"]["name"]} if kind == "tool" else {}
    return {"tools": tools, "tool_choice": {"type": kind, **named}}


def _tool(tool: Block, where: str) -> Block:
    if "toolSpec" not in tool:
        raise BadRequest(f"{where} must have a toolSpec; others are not translated.", param=where)
    spec = tool["toolSpec"]
    about = {name: spec[name] for name in ("description", "strict") if spec.get(name)}
    return {"name": spec["name"], "input_schema": spec["inputSchema"]["json"], **about}


def _output(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    form = config.get("textFormat") or {}
    if form.get("type") == "json_schema":
        schema = orjson.loads(form["structure"]["jsonSchema"]["schema"])
        found["format"] = {"type": "json_schema", "schema": schema}
    if config.get("effort"):
        found["effort"] = config["effort"]
    return {"output_config": found} if found else {}
