"""OpenAI chat messages as Anthropic's system prompt and alternating turns of content blocks."""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.errors import BadRequest

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,", re.ASCII)
_ID = re.compile(r"[^A-Za-z0-9_-]")

Block = dict[str, Any]
Numbered = tuple[int, dict[str, Any]]
"""A message and its place in the client's request."""


def conversation(messages: list[Numbered]) -> tuple[str | list[Block], list[Block]]:
    """System prompt (every system message, in order) and turns. Raises BadRequest naming what cannot be said."""
    system: list[Block] = []
    turns: list[Block] = []
    for index, message in messages:
        role, where = message["role"], f"messages[{index}]"
        if role in ("system", "developer"):
            system += _blocks(message.get("content"), where)
        elif role in ("tool", "function"):
            _append(turns, "user", [_result(message, where)])
        elif role == "assistant":
            _append(turns, "assistant", [*_blocks(message.get("content"), where), *_uses(message, where)])
        else:
            _append(turns, "user", _blocks(message.get("content"), where))
    if not turns:  # Anthropic wants at least one.
        _append(turns, "user", system)
        system = []
    return _plain_if_possible(system), [{**turn, "content": _plain_if_possible(turn["content"])} for turn in turns]


def _append(turns: list[Block], role: str, blocks: list[Block]) -> None:
    """Neighbours of one role become one turn: results of parallel calls must arrive together."""
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": blocks})


def _plain_if_possible(blocks: list[Block]) -> str | list[Block]:
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        text: str = blocks[0]["text"]
        return text
    return blocks


def _blocks(content: Any, where: str) -> list[Block]:
    """Empty texts are left out: Anthropic refuses them."""
    if type(content) is str:
        return [{"type": "text", "text": content}] if content else []
    blocks = [_block(part, f"{where}.content[{number}]") for number, part in enumerate(content or ())]
    return [block for block in blocks if block.get("text") != ""]


def _block(part: Block, where: str) -> Block:
    kind = part["type"]
    if kind in ("text", "refusal"):
        block = {"type": "text", "text": part.get(kind) or ""}
    elif kind == "image_url":
        block = _image(part.get("image_url"), where)
    elif kind == "file":
        block = _document(part.get("file"), where)
    elif kind == "input_audio":
        raise BadRequest(f"{where} is audio, which this model does not take.", param=where)
    else:
        return part  # One of Anthropic's own, or one that its API will name in its refusal.
    return {**block, "cache_control": part["cache_control"]} if part.get("cache_control") else block


def _image(image: Any, where: str) -> Block:
    url = image.get("url") if type(image) is dict else image
    if type(url) is not str:
        raise BadRequest(f"{where}.image_url.url must be a string.", param=f"{where}.image_url.url")
    if found := _DATA_URL.match(url):
        return {"type": "image", "source": _base64(found, url)}
    return {"type": "image", "source": {"type": "url", "url": url}}


def _base64(found: re.Match[str], url: str) -> Block:
    return {"type": "base64", "media_type": found.group(1), "data": url[found.end() :]}


def _document(file: Any, where: str) -> Block:
    data = file.get("file_data") if type(file) is dict else None
    found = _DATA_URL.match(data) if type(data) is str else None
    if data is None or found is None:
        raise BadRequest(f"{where}.file.file_data must be a base64 data URL for this model.", param=f"{where}.file")
    document = {"type": "document", "source": _base64(found, data)}
    name = file.get("filename")
    return {**document, "title": name} if type(name) is str and name else document


def _uses(message: Block, where: str) -> list[Block]:
    uses = [
        _use(call.get("id"), call.get("function"), f"{where}.tool_calls[{number}]")
        for number, call in enumerate(message.get("tool_calls") or ())
    ]
    if function := object_or_none(message.get("function_call")):
        uses.append(_use(function.get("name"), function, f"{where}.function_call"))
    return uses


def _use(call_id: Any, function: Any, where: str) -> Block:
    if type(function) is not dict or type(function.get("name")) is not str or type(call_id) is not str:
        raise BadRequest(f"{where} must be a function call with an id and a name.", param=where)
    arguments = function.get("arguments") or "{}"
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        given = None
    if type(given) is not dict:
        param = f"{where}.function.arguments"
        raise BadRequest(f"{param} must be a JSON object written as a string.", param=param)
    return {"type": "tool_use", "id": _ID.sub("_", call_id), "name": function["name"], "input": given}


def _result(message: Block, where: str) -> Block:
    call_id = message.get("tool_call_id") or message.get("name")
    if type(call_id) is not str:
        raise BadRequest(f"{where}.tool_call_id must be a string.", param=f"{where}.tool_call_id")
    content = message.get("content")
    result = {
        "type": "tool_result",
        "tool_use_id": _ID.sub("_", call_id),
        "content": content if type(content) is str else _plain_if_possible(_blocks(content, where)),
    }
    return {**result, "cache_control": message["cache_control"]} if message.get("cache_control") else result


def object_or_none(value: Any) -> dict[str, Any] | None:
    return value if type(value) is dict else None
