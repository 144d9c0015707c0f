"""Replays a stored chat completion as a stream."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from gateway.dialects.openai_chat.message import TEXT_FIELDS
from gateway.dialects.openai_chat.reader import DONE

WORDS_PER_CHUNK = 15
"""Number of words of text per chunk. This is about twenty tokens."""

_PIECE = re.compile(rf"(?:\s*\S{{1,24}}){{1,{WORDS_PER_CHUNK}}}\s*|\s+")
_EVERYWHERE = ("id", "created", "model", "system_fingerprint", "service_tier")
_MESSAGE_ONLY = frozenset({*TEXT_FIELDS, "role", "tool_calls", "function_call"})
_CHOICE_ONLY = frozenset({"index", "message", "logprobs", "finish_reason"})


def chat_stream(body: dict[str, Any], *, wants_usage: bool) -> tuple[bytes, bytes]:
    """Convert a plain body to a stream. Returns two values: all events except the terminating event, and the
    terminating event."""
    events = [b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks(body, wants_usage=wants_usage)]
    return b"".join(events), DONE


def chunks(body: dict[str, Any], *, wants_usage: bool) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a stream with the content of the plain `body`."""
    shared = {name: body[name] for name in _EVERYWHERE if name in body} | {"object": "chat.completion.chunk"}
    once = {name: value for name, value in body.items() if name not in shared and name not in ("choices", "usage")}
    for position, choice in enumerate(body["choices"]):
        for part in _choice(choice):
            yield {**shared, **once, "choices": [{"index": choice.get("index", position), **part}]}
            once = {}
    if wants_usage and "usage" in body:
        yield {**shared, "choices": [], "usage": body["usage"]}


def _choice(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of one choice. If the choice has log-probabilities, all of them are in the first part with
    text."""
    logprobs = [None, choice.get("logprobs")]
    for delta in _deltas(choice["message"]):
        yield {"delta": delta, "logprobs": logprobs.pop(0) if logprobs else None, "finish_reason": None}
    beside = {name: value for name, value in choice.items() if name not in _CHOICE_ONLY}
    last = logprobs.pop() if logprobs else None
    yield {"delta": {}, "logprobs": last, "finish_reason": choice.get("finish_reason"), **beside}


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    extra = {name: value for name, value in message.items() if name not in _MESSAGE_ONLY}
    content = None if message.get("content") is None else ""
    yield {"role": message.get("role", "assistant"), "content": content, **extra}
    for field in TEXT_FIELDS:
        for piece in _PIECE.findall(message.get(field) or ""):
            yield {field: piece}
    for index, call in enumerate(message.get("tool_calls") or ()):
        kind, text = ("custom", "input") if "custom" in call else ("function", "arguments")
        inner = call.get(kind) or {}
        yield {"tool_calls": [{**call, "index": index, kind: {**inner, text: ""}}]}
        for piece in _PIECE.findall(inner.get(text) or ""):
            yield {"tool_calls": [{"index": index, kind: {text: piece}}]}
    if function := message.get("function_call"):
        yield {"function_call": function}
