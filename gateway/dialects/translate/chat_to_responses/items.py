"""Converts chat messages to items of a Responses `input`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.errors import BadRequest

Item = dict[str, Any]
Numbered = tuple[int, Item]
"""(Index of a message in the client's request, message)."""


def items(messages: Iterable[Numbered]) -> list[Item]:
    """Convert messages to items, in order, without the model's thinking. Raises BadRequest with the location of
    unsupported content."""
    found: list[Item] = []
    custom: set[str] = set()
    for index, message in messages:
        role, where = message["role"], f"messages[{index}]"
        if role in ("tool", "function"):
            found.append(_result(message, custom, where))
        elif role == "assistant":
            found += _assistant_items(message, where)
            custom |= {call["call_id"] for call in found if call.get("type") == "custom_tool_call"}
        else:
            content = message.get("content")
            found.append({"role": role, "content": "" if content is None else _content(content, f"{where}.content")})
    return found


def _assistant_items(message: Item, where: str) -> list[Item]:
    if message.get("audio"):
        raise BadRequest(f"{where}.audio is what this model cannot be reminded of.", param=f"{where}.audio")
    calls = [
        _call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(message.get("tool_calls") or ())
    ]
    if function := message.get("function_call"):
        calls.append(_function_call(_old_id(function, where), function, f"{where}.function_call"))
    content = _assistant_content(message, f"{where}.content")
    return [{"role": "assistant", "content": content}, *calls] if content or not calls else calls


def _assistant_content(message: Item, where: str) -> str | list[Item]:
    """The content of an assistant message. If the message contains a refusal, the content is a list of parts. Otherwise
    it is usually a string, which every server accepts."""
    content = message.get("content") or ""
    parts = [{"type": "text", "text": content}] if type(content) is str and content else list(content)
    if refusal := message.get("refusal"):
        parts.append({"type": "refusal", "refusal": refusal})
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return [_assistant_part(part, f"{where}[{number}]") for number, part in enumerate(parts)]


def _assistant_part(part: Item, where: str) -> Item:
    if part["type"] == "refusal":
        return {"type": "refusal", "refusal": part.get("refusal") or ""}
    if part["type"] == "text":
        return {"type": "output_text", "text": part["text"], "annotations": []}
    raise BadRequest(f"{where} is no text, and an assistant says nothing else here.", param=where)


def _call(call: Item, where: str) -> Item:
    call_id = call.get("id")
    if type(call_id) is not str:
        raise BadRequest(f"{where}.id must be a string.", param=f"{where}.id")
    custom = call.get("custom")
    if type(custom) is not dict:
        return _function_call(call_id, call.get("function"), where)
    if type(custom.get("name")) is not str or type(custom.get("input")) is not str:
        raise BadRequest(f"{where}.custom must have a name and an input.", param=f"{where}.custom")
    return {"type": "custom_tool_call", "call_id": call_id, "name": custom["name"], "input": custom["input"]}


def _function_call(call_id: str, function: Any, where: str) -> Item:
    """A function call item. The arguments are the text that the model generated, unchanged."""
    if type(function) is not dict or type(function.get("name")) is not str:
        raise BadRequest(f"{where} must be a call of a function with a name.", param=where)
    arguments = function.get("arguments") or "{}"
    if type(arguments) is not str:
        param = f"{where}.function.arguments"
        raise BadRequest(f"{param} must be a JSON object written as a string.", param=param)
    return {"type": "function_call", "call_id": call_id, "name": function["name"], "arguments": arguments}


def _result(message: Item, custom: set[str], where: str) -> Item:
    call_id = message.get("tool_call_id") or (_old_id(message, where) if message["role"] == "function" else None)
    if type(call_id) is not str:
        raise BadRequest(f"{where}.tool_call_id must be a string.", param=f"{where}.tool_call_id")
    content = message.get("content")
    output = "" if content is None else _content(content, f"{where}.content")
    kind = "custom_tool_call_output" if call_id in custom else "function_call_output"
    return {"type": kind, "call_id": call_id, "output": output}


def _old_id(named: Any, where: str) -> str:
    """An id for a call in the deprecated field `function_call`, made from the function's name."""
    name = named.get("name") if type(named) is dict else None
    if type(name) is not str:
        raise BadRequest(f"{where} must name its function.", param=where)
    return f"call_{name}"


def _content(content: Any, where: str) -> str | list[Item]:
    """The content in the format of Responses. A single text becomes a string, which every server accepts."""
    if type(content) is str:
        return content
    parts = [_part(part, f"{where}[{number}]") for number, part in enumerate(content)]
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        text: str = parts[0]["text"]
        return text
    return parts


def _part(part: Item, where: str) -> Item:
    kind = part["type"]
    if kind in ("text", "refusal"):
        converted = {"type": "input_text", "text": part.get(kind) or ""}
    elif kind == "image_url":
        converted = _image(part.get("image_url"), where)
    elif kind == "file":
        converted = _file(part.get("file"), where)
    elif kind == "input_audio":
        raise BadRequest(f"{where} is audio, which this model does not take.", param=where)
    else:
        return part  # the part is in the format of Responses, or Responses will reject it
    mark = part.get("prompt_cache_breakpoint")
    return {**converted, "prompt_cache_breakpoint": mark} if mark else converted


def _image(image: Any, where: str) -> Item:
    value = image if type(image) is dict else {"url": image}
    if type(value.get("url")) is not str:
        raise BadRequest(f"{where}.image_url.url must be a string.", param=f"{where}.image_url.url")
    return {"type": "input_image", "image_url": value["url"], "detail": value.get("detail") or "auto"}


def _file(file: Any, where: str) -> Item:
    fields = file if type(file) is dict else {}
    known = {name: fields[name] for name in ("file_id", "file_data", "filename") if type(fields.get(name)) is str}
    if "file_id" not in known and "file_data" not in known:
        raise BadRequest(f"{where}.file must have file_data or a file_id.", param=f"{where}.file")
    return {"type": "input_file", **known}
