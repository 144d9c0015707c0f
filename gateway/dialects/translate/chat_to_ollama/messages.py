"""Converts chat messages to Ollama's messages. In these, the content is one text, pictures are in base64, and the
arguments of calls are objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from gateway.dialects.translate.chat_to_messages.media import document, image
from gateway.errors import BadRequest

Block = dict[str, Any]
Numbered = tuple[int, dict[str, Any]]

_ROLES = {"developer": "system", "function": "tool"}
_ANTHROPICS = ("thinking", "redacted_thinking")


def messages(given: Iterable[Numbered]) -> list[Block]:
    """The messages in Ollama's format. `given`: (index in the client's request, message). Raises BadRequest with the
    place of content that Ollama does not take."""
    names: dict[str, str] = {}
    return [_message(message, names, f"messages[{index}]") for index, message in given]


def _message(message: Block, names: dict[str, str], where: str) -> Block:
    """Convert a message to Ollama's format. `names`: id of each earlier call → name of the called function.

    The calls of this message are added to `names`.
    """
    role = _ROLES.get(message["role"], message["role"])
    content = [*_blocks(message, where)]
    found: Block = {"role": role, "content": "\n".join(each["text"] for each in content if "text" in each)}
    if images := [each["data"] for each in content if "data" in each]:
        found["images"] = images
    if role == "assistant":
        if type(thought := message.get("reasoning_content") or message.get("reasoning")) is str:
            found["thinking"] = thought
        if calls := [*_calls(message, names, where)]:
            found["tool_calls"] = calls
    elif role == "tool":
        call_id = message.get("tool_call_id")
        found |= {"tool_call_id": call_id} if call_id else {}
        if name := names.get(str(call_id)) or message.get("name"):
            found["tool_name"] = name
    return found


def _blocks(message: Block, where: str) -> Iterator[Block]:
    """The parts of the content: `{"text": …}`, or `{"data": …}` with a picture in base64."""
    content = message.get("content")
    if isinstance(content, str):
        yield {"text": content}
    else:
        for number, part in enumerate(content or ()):
            if (block := _block(part, f"{where}.content[{number}]")) is not None:
                yield block
    if type(refused := message.get("refusal")) is str and refused:
        yield {"text": refused}


def _block(part: Block, where: str) -> Block | None:
    kind = part["type"]
    if kind in ("text", "refusal"):
        if type(part.get(kind)) is not str:
            raise BadRequest(f"{where}.{kind} must be a string.", param=f"{where}.{kind}")
        return {"text": part[kind]}
    if kind in _ANTHROPICS:
        return None
    if kind not in ("image_url", "file"):
        raise BadRequest(f"{where}: Ollama takes texts and pictures, not {kind}.", param=where)
    found = image(part.get(kind), where) if kind == "image_url" else document(part.get(kind), where)
    source = found["source"]
    if source["type"] == "text":
        return {"text": "\n".join(text for text in (found.get("title"), source["data"]) if text)}
    if found["type"] != "image" or source["type"] != "base64":
        raise BadRequest(f"{where}: Ollama takes texts, and pictures as data URLs in base64.", param=where)
    return {"data": source["data"]}


def _calls(message: Block, names: dict[str, str], where: str) -> Iterator[Block]:
    for number, call in enumerate(message.get("tool_calls") or ()):
        place = f"{where}.tool_calls[{number}]"
        if call.get("type") == "custom":
            raise BadRequest(f"{place} calls a custom tool; this model only knows functions.", param=place)
        function, call_id = call["function"], str(call.get("id") or "")
        names[call_id] = function["name"]
        arguments = _arguments(function.get("arguments"), f"{place}.function.arguments")
        made = {"function": {"index": number, "name": function["name"], "arguments": arguments}}
        yield {"id": call_id, **made} if call_id else made
    if type(function := message.get("function_call")) is dict:
        given = _arguments(function.get("arguments"), f"{where}.function_call.arguments")
        yield {"function": {"name": function["name"], "arguments": given}}


def _arguments(given: Any, where: str) -> Any:
    """The arguments of a call. Their bytes are kept, because parsing could change long numbers."""
    written = given.strip().encode() or b"{}" if type(given) is str else b"{}" if given is None else b""
    try:
        if type(orjson.loads(written)) is dict:
            return orjson.Fragment(written)
    except orjson.JSONDecodeError:
        pass
    raise BadRequest(f"{where} must be a JSON object written as a string.", param=where)
