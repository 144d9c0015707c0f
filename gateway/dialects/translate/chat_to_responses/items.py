"""Writes chat messages as items of a Responses `input`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.errors import BadRequest

Item = dict[str, Any]
Numbered = tuple[int, Item]
"""A message and its place in the client's request."""


def items(messages: Iterable[Numbered]) -> list[Item]:
    """In the same order. What an assistant thought is left out: it was never signed for this backend.

    Raises BadRequest naming what Responses cannot say.
    """
    said: list[Item] = []
    custom: set[str] = set()
    for index, message in messages:
        role, where = message["role"], f"messages[{index}]"
        if role in ("tool", "function"):
            said.append(_result(message, custom, where))
        elif role == "assistant":
            said += _spoken(message, where)
            custom |= {call["call_id"] for call in said if call.get("type") == "custom_tool_call"}
        else:
            content = message.get("content")
            said.append({"role": role, "content": "" if content is None else _content(content, f"{where}.content")})
    return said


def _spoken(message: Item, where: str) -> list[Item]:
    if message.get("audio"):
        raise BadRequest(f"{where}.audio is what this model cannot be reminded of.", param=f"{where}.audio")
    calls = [
        _call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(message.get("tool_calls") or ())
    ]
    if function := message.get("function_call"):
        calls.append(_function_call(_old_id(function, where), function, f"{where}.function_call"))
    content = _spoken_content(message, f"{where}.content")
    return [{"role": "assistant", "content": content}, *calls] if content or not calls else calls


def _spoken_content(message: Item, where: str) -> str | list[Item]:
    """One string, which every server takes; parts only where something was refused."""
    content = message.get("content") or ""
    parts = [{"type": "text", "text": content}] if type(content) is str and content else list(content)
    if refusal := message.get("refusal"):
        parts.append({"type": "refusal", "refusal": refusal})
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return [_spoken_part(part, f"{where}[{number}]") for number, part in enumerate(parts)]


def _spoken_part(part: Item, where: str) -> Item:
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
    """The arguments are the very string that the model wrote."""
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
    """Calls of the first kind had no id, and only one at a time was under way."""
    name = named.get("name") if type(named) is dict else None
    if type(name) is not str:
        raise BadRequest(f"{where} must name its function.", param=where)
    return f"call_{name}"


def _content(content: Any, where: str) -> str | list[Item]:
    """A single text is a string, which every server takes."""
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
        said = {"type": "input_text", "text": part.get(kind) or ""}
    elif kind == "image_url":
        said = _image(part.get("image_url"), where)
    elif kind == "file":
        said = _file(part.get("file"), where)
    elif kind == "input_audio":
        raise BadRequest(f"{where} is audio, which this model does not take.", param=where)
    else:
        return part  # One of Responses' own, or one that its API will name in its refusal.
    mark = part.get("prompt_cache_breakpoint")
    return {**said, "prompt_cache_breakpoint": mark} if mark else said


def _image(image: Any, where: str) -> Item:
    given = image if type(image) is dict else {"url": image}
    if type(given.get("url")) is not str:
        raise BadRequest(f"{where}.image_url.url must be a string.", param=f"{where}.image_url.url")
    return {"type": "input_image", "image_url": given["url"], "detail": given.get("detail") or "auto"}


def _file(file: Any, where: str) -> Item:
    fields = file if type(file) is dict else {}
    known = {name: fields[name] for name in ("file_id", "file_data", "filename") if type(fields.get(name)) is str}
    if "file_id" not in known and "file_data" not in known:
        raise BadRequest(f"{where}.file must have file_data or a file_id.", param=f"{where}.file")
    return {"type": "input_file", **known}
