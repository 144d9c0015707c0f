"""An OpenAI chat request as the client sent it: checked where the gateway acts on it, carried untouched elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.domain.request import CompletionRequest, Controls, Role, Turn
from gateway.errors import BadRequest

MAX_DEPTH = 128
"""Levels of nesting that every JSON library on the way can write again."""
MAX_ANSWERS = 128

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_FORWARDED = frozenset({b"openai-beta", b"x-client-request-id", b"traceparent", b"tracestate"})
"""What a backend may see. Organisation and project belong to the client's own account, so they stay here."""


def parse(body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes]) -> CompletionRequest:
    """Parse once. Raises BadRequest naming the field for anything that the gateway could not act on."""
    fields = load_object(body)
    _check_types(fields)
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("model is required: the name of a model, for example 'auto'.", param="model")
    turns = _turns(fields.get("messages"))
    stream = fields.get("stream") is True
    return CompletionRequest(
        id=request_id,
        dialect="openai_chat",
        raw=body,
        body=fields,
        model=model,
        turns=turns,
        stream=stream,
        max_output_tokens=_max_output_tokens(fields),
        temperature=fields.get("temperature"),
        needs=_needs(fields, turns),
        wants_usage=stream and (fields.get("stream_options") or {}).get("include_usage") is True,
        controls=controls,
        headers={name: value for name, value in headers.items() if name in _FORWARDED},
        parallel=fields.get("n") or 1,
    )


def load_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises BadRequest for anything else, NaN and lone surrogates included."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from error
    if type(fields) is not dict:
        raise BadRequest("The body must be a JSON object.")
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _depth_exceeds(fields, MAX_DEPTH):
        raise BadRequest(f"The body is nested more than {MAX_DEPTH} levels deep.")
    return fields


def _depth_exceeds(fields: dict[str, Any], limit: int) -> bool:
    level: list[Any] = [fields]
    for _ in range(limit):
        children = (child for node in level for child in (node.values() if type(node) is dict else node))
        level = [child for child in children if type(child) is dict or type(child) is list]
        if not level:
            return False
    return True


_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "stream": ((bool,), "true or false"),
    "stream_options": ((dict,), "an object"),
    "n": ((int,), f"a whole number from 1 to {MAX_ANSWERS}"),
    "temperature": ((int, float), "a number"),
    "max_tokens": ((int,), "a whole number of at least 1"),
    "max_completion_tokens": ((int,), "a whole number of at least 1"),
    "tools": ((list,), "an array"),
    "functions": ((list,), "an array"),
    "response_format": ((dict,), "an object"),
    "logprobs": ((bool,), "true or false"),
}
_SMALLEST = {"n": 1, "max_tokens": 1, "max_completion_tokens": 1}


def _check_types(fields: dict[str, Any]) -> None:
    """Null is as good as absent; `type() in` also tells true from 1."""
    for name in _TYPES.keys() & fields.keys():
        value = fields[name]
        if value is None:
            continue
        types, wanted = _TYPES[name]
        if type(value) not in types or (name in _SMALLEST and value < _SMALLEST[name]):
            raise BadRequest(f"{name} must be {wanted}.", param=name)
    if (fields.get("n") or 1) > MAX_ANSWERS:
        raise BadRequest(f"n must be {_TYPES['n'][1]}.", param="n")


def _max_output_tokens(fields: dict[str, Any]) -> int | None:
    value: int | None = fields.get("max_completion_tokens")
    return value if value is not None else fields.get("max_tokens")


def _needs(fields: dict[str, Any], turns: list[Turn]) -> frozenset[str]:
    needs = set()
    if fields.get("tools") or fields.get("functions") or any(turn.calls or turn.results for turn in turns):
        needs.add("tools")
    if any(turn.images for turn in turns):
        needs.add("vision")
    if (fields.get("response_format") or {}).get("type") == "json_schema":
        needs.add("json_schema")
    if fields.get("logprobs"):
        needs.add("logprobs")
    if fields.get("reasoning_effort") not in (None, "none"):
        needs.add("reasoning")
    return frozenset(needs)


def _turns(messages: Any) -> list[Turn]:
    if type(messages) is not list or not messages:
        raise BadRequest("messages must be an array with at least one message.", param="messages")
    return [_turn(index, message) for index, message in enumerate(messages)]


def _turn(index: int, message: Any) -> Turn:
    where = f"messages[{index}]"
    if type(message) is not dict:
        raise BadRequest(f"{where} must be an object.", param=where)
    role = message.get("role")
    if type(role) is not str:
        raise BadRequest(f"{where}.role must be a string such as 'user'.", param=f"{where}.role")
    content = message.get("content")
    if type(content) is str:
        text, images = content, 0
    else:
        text, images = _parts(content, f"{where}.content")
    calls = message.get("tool_calls")
    answered = message.get("tool_call_id")
    return Turn(
        index=index,
        role=_ROLES.get(role, "user"),
        text=text,
        calls=_call_ids(calls, f"{where}.tool_calls") if calls else (),
        results=(answered,) if type(answered) is str else (),
        images=images,
    )


def _parts(content: Any, where: str) -> tuple[str, int]:
    """Text and number of images in the content parts."""
    if content is None:
        return "", 0
    if type(content) is not list:
        raise BadRequest(f"{where} must be a string or an array of parts.", param=where)
    texts, images = [], 0
    for number, part in enumerate(content):
        if type(part) is not dict or type(part.get("type")) is not str:
            raise BadRequest(f"{where}[{number}] must be an object with a type.", param=f"{where}[{number}]")
        text = part.get("text") if part["type"] != "refusal" else part.get("refusal")
        if type(text) is str:
            texts.append(text)
        elif part["type"] == "text":
            raise BadRequest(f"{where}[{number}].text must be a string.", param=f"{where}[{number}].text")
        elif part["type"] == "image_url":
            images += 1
    return "\n".join(texts), images


def _call_ids(calls: Any, where: str) -> tuple[str, ...]:
    if type(calls) is not list or not all(type(call) is dict for call in calls):
        raise BadRequest(f"{where} must be an array of objects.", param=where)
    return tuple(call["id"] for call in calls if type(call.get("id")) is str)
