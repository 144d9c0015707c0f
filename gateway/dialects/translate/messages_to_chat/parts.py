"""Converts Anthropic messages to OpenAI chat messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.dialects.anthropic_messages.thinking import carried, is_unsigned
from gateway.dialects.openai_chat.message import signed
from gateway.dialects.translate.messages_to_chat.tools import short
from gateway.errors import BadRequest

Message = dict[str, Any]
Part = dict[str, Any]

_SEPARATE = ("image_url", "file")
"""Types of parts that are not allowed in a tool result in chat."""


def system_message(system: str | list[Part]) -> Message:
    """The chat message for the system prompt."""
    content = system if isinstance(system, str) else _plain_if_possible(_parts(system, "system"))
    return {"role": "system", "content": content}


def chat_messages(message: Message, where: str) -> Iterator[Message]:
    """Convert one message to chat messages. Each tool result becomes a message of its own. Raises BadRequest with the
    location of an error."""
    content, role = message["content"], message["role"]
    if type(content) is str:
        yield {"role": role, "content": content}
    elif role == "assistant":
        yield _assistant(content, f"{where}.content")
    else:
        yield from _user(role, content, f"{where}.content")


def _user(role: str, content: list[Part], where: str) -> Iterator[Message]:
    """Yield the chat messages for a user's message. The tool results come first, because chat requires them directly
    after their calls. Then comes one message with the user's text and with the parts that a tool result cannot have in
    chat."""
    shown: list[Part] = []
    own: list[Part] = []
    for number, block in enumerate(content):
        place = f"{where}[{number}]"
        if block["type"] == "tool_result":
            result, separate = _result(block, place)
            yield result
            shown += separate
        else:
            own += _part(block, place)
    if parts := shown + own:
        yield {"role": role, "content": _plain_if_possible(parts)}


def _result(block: Part, where: str) -> tuple[Message, list[Part]]:
    """Convert a tool result. Returns a message with its text, and its other parts.

    If the result is an error, the word "Error:" is written before the text, because chat has no field for errors.
    """
    content = block.get("content")
    parts = _parts(content, f"{where}.content") if type(content) is list else [_text(content or "")]
    texts = [part for part in parts if part["type"] not in _SEPARATE]
    separate = [part for part in parts if part["type"] in _SEPARATE]
    call_id = block["tool_use_id"]
    if separate:
        texts.append(_text("[What is no text follows in the next message.]"))
        separate.insert(0, _text(f"From the result of the tool call {call_id}:"))
    if block.get("is_error") is True:
        texts.insert(0, _text("Error:"))
    message = {"role": "tool", "tool_call_id": call_id, "content": "\n".join([part["text"] for part in texts])}
    return {**message, "cache_control": block["cache_control"]} if block.get("cache_control") else message, separate


def _assistant(content: list[Part], where: str) -> Message:
    parts: list[Part] = []
    calls: list[Part] = []
    thoughts: list[Part] = []
    signature = ""
    for number, block in enumerate(content):
        if block["type"] == "tool_use":
            call = _call(block, f"{where}[{number}]")
            calls.append(signed(call, signature) if signature else call)
            signature = ""
        elif block["type"] in ("thinking", "redacted_thinking"):
            thoughts.append(block)
            signature = carried(block) or signature
        else:
            parts += _part(block, f"{where}[{number}]")
    message: Message = {"role": "assistant", "content": _plain_if_possible(parts) if parts else None}
    if calls:
        message["tool_calls"] = calls
    if own := [block for block in thoughts if not is_unsigned(block)]:
        message["thinking_blocks"] = own
    if text := "".join([str(block.get("thinking", "")) for block in thoughts if is_unsigned(block)]):
        message["reasoning_content"] = text
    if calls and content[-1]["type"] == "tool_use" and (mark := content[-1].get("cache_control")):
        message["cache_control"] = mark  # the mark of a message counts for its last block
    return message if calls or parts else {**message, "content": ""}


def _call(block: Part, where: str) -> Part:
    name, value = block.get("name"), block.get("input")
    if type(name) is not str or type(value) is not dict:
        raise BadRequest(f"{where} must have a name and an input, which is an object.", param=where)
    function = {"name": short(name), "arguments": orjson.dumps(value).decode()}
    return {"id": block["id"], "type": "function", "function": function}


def _parts(content: list[Part], where: str) -> list[Part]:
    return [part for number, block in enumerate(content) for part in _part(block, f"{where}[{number}]")]


def _part(block: Part, where: str) -> list[Part]:
    """A block, converted to chat parts. If the block has a cache mark, the mark is moved to the last part."""
    match block.get("type") if type(block) is dict else None:
        case "text" if type(block.get("text")) is str:
            parts = [_text(block["text"])]
        case "image":
            parts = [_image(_source(block), f"{where}.source")]
        case "document":
            parts = _document(block, where)
        case "search_result":
            parts = [_text(found) for name in ("title", "source") if (found := _string(block.get(name)))]
            parts += _parts(block.get("content") or [], f"{where}.content")
        case other:
            raise BadRequest(
                f"{where} is a block of type {other!r}, which the model that serves this request cannot read.",
                param=where,
            )
    if parts and block.get("cache_control"):
        parts[-1] = {**parts[-1], "cache_control": block["cache_control"]}
    return parts


def _string(value: Any) -> str:
    return value if type(value) is str else ""


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _source(block: Part) -> Part:
    source = block.get("source")
    return source if type(source) is dict else {}


def _image(source: Part, where: str) -> Part:
    kind = source.get("type")
    if kind == "base64":
        return {"type": "image_url", "image_url": {"url": _data_url(source, where)}}
    if kind == "url" and type(source.get("url")) is str:
        return {"type": "image_url", "image_url": {"url": source["url"]}}
    raise BadRequest(f"{where} must be of type base64 or url for the model that serves this request.", param=where)


def _document(block: Part, where: str) -> list[Part]:
    """Convert a document. A text document becomes a text, and a PDF becomes a file. Models of other vendors support no
    citations, URLs or uploaded files."""
    citations = block.get("citations")
    if type(citations) is dict and citations.get("enabled") is True:
        place = f"{where}.citations"
        raise BadRequest(f"{place}: the model that serves this request cannot cite; leave it out.", param=place)
    place, source = f"{where}.source", _source(block)
    kind = source.get("type")
    title, context = (_text(found) if (found := _string(block.get(name))) else None for name in ("title", "context"))
    heading = [text for text in (title, context) if text]
    if kind == "text" and type(source.get("data")) is str:
        return [*heading, _text(source["data"])]
    if kind == "content":
        inner = source.get("content")
        return heading + (_parts(inner, f"{place}.content") if type(inner) is list else [_text(_string(inner))])
    if kind == "base64":
        file = {"filename": block.get("title") or "document.pdf", "file_data": _data_url(source, place)}
        return [*([context] if context else []), {"type": "file", "file": file}]
    raise BadRequest(
        f"{place} must be of type base64, text or content for the model that serves this request.", param=place
    )


def _data_url(source: Part, where: str) -> str:
    kind, data = source.get("media_type"), source.get("data")
    if type(kind) is not str or type(data) is not str:
        raise BadRequest(f"{where} must have a media_type and data.", param=where)
    return f"data:{kind};base64,{data}"


def _plain_if_possible(parts: list[Part]) -> str | list[Part]:
    """The parts. If there is only a single text, a string, because every server accepts a string."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        text: str = parts[0]["text"]
        return text
    return parts
