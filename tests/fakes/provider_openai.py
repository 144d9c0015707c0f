"""The scripted provider in OpenAI's words: chat completions, plain and streamed, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.domain.money.usage import Usage
from tests.fakes.provider_answer import Event, Spoken, claimed, pieces
from tests.fakes.provider_script import Fail

CREATED = 1_700_000_000

_ERRORS = {
    400: ("invalid_request_error", "invalid_value"),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    405: ("invalid_request_error", "method_not_supported"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "overloaded"),
}


def error(fail: Fail) -> bytes:
    kind, code = _ERRORS.get(fail.status, ("server_error", None))
    return orjson.dumps(
        {"error": {"message": fail.message, "type": kind, "param": fail.param or None, "code": fail.code or code}}
    )


def unknown_url(method: str, path: str) -> bytes:
    """The body of a 404 for a path that is not spoken: unlike that for an unknown model it has no code."""
    message = f"Invalid URL ({method} {path})"
    return orjson.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})


def models(names: tuple[str, ...]) -> bytes:
    rows = [{"id": name, "object": "model", "created": CREATED, "owned_by": "scripted"} for name in names]
    return orjson.dumps({"object": "list", "data": rows})


def plain(spoken: Spoken) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": spoken.text or None, "refusal": None}
    if spoken.reasoning:
        message["reasoning_content"] = "".join(spoken.reasoning)
    if spoken.call:
        message["tool_calls"] = [_call(*spoken.call)]
    message |= spoken.reply.message
    choices = [
        {"index": n, "message": message, "logprobs": _logprobs(spoken, spoken.tokens), "finish_reason": spoken.finish}
        for n in range(spoken.parallel)
    ]
    body = {
        "id": spoken.id,
        "object": "chat.completion",
        "created": CREATED,
        "model": spoken.model,
        "choices": choices,
        "system_fingerprint": "fp_scripted",
    }
    usage = claimed(spoken.usage, spoken.reply)
    if usage is not None:
        body["usage"] = chat_usage(usage, spoken)
    return orjson.dumps(body)


def events(spoken: Spoken) -> Iterator[Event]:
    for index in range(spoken.parallel):
        yield _chunk(spoken, index, {"role": "assistant", "content": "", "refusal": None})
    yield from _shown(spoken) if spoken.reply.message else _spoken(spoken)
    for index in range(spoken.parallel):
        yield _chunk(spoken, index, {}, finish=spoken.finish)
    usage = claimed(spoken.usage, spoken.reply)
    if spoken.include_usage and usage is not None:
        yield Event(_data(_frame(spoken, choices=[], usage=chat_usage(usage, spoken))))
    if spoken.reply.done:
        yield Event(b"data: [DONE]\n\n")


def _spoken(spoken: Spoken) -> Iterator[Event]:
    padding = " " * spoken.reply.huge
    for token in spoken.reasoning:
        yield _chunk(spoken, 0, {"reasoning_content": token}, tokens=1)
    for token in spoken.tokens:
        for index in range(spoken.parallel):
            yield _chunk(spoken, index, {"content": token + padding}, text=token + padding, tokens=1)
        padding = ""
    if spoken.call:
        yield from _call_chunks(spoken, *spoken.call)


def _shown(spoken: Spoken) -> Iterator[Event]:
    """A given message, in every choice; its calls come interleaved, told apart by their index."""
    message = spoken.reply.message
    for field in ("reasoning_content", "content", "refusal"):
        for word in pieces(message.get(field) or ""):
            for index in range(spoken.parallel):
                yield _chunk(spoken, index, {field: word}, text=word if field == "content" else "", tokens=1)
    calls = message.get("tool_calls") or []
    for number, call in enumerate(calls):
        kind, text = _writing(call)
        head = {"index": number, **call, kind: {**call[kind], text: ""}}
        yield _chunk(spoken, 0, {"tool_calls": [head]})
    for start in range(0, max((len(call[_writing(call)[0]][_writing(call)[1]]) for call in calls), default=0), 8):
        for number, call in enumerate(calls):
            kind, text = _writing(call)
            if piece := call[kind][text][start : start + 8]:
                event = _chunk(spoken, 0, {"tool_calls": [{"index": number, kind: {text: piece}}]})
                yield Event(event.data, piece, 0, True)


def _writing(call: dict[str, Any]) -> tuple[str, str]:
    """Where a call has what the model wrote."""
    return ("custom", "input") if "custom" in call else ("function", "arguments")


def error_event(message: str) -> bytes:
    return _data({"error": {"message": message, "type": "server_error", "param": None, "code": None}})


def _chunk(
    spoken: Spoken, index: int, delta: dict[str, Any], *, text: str = "", tokens: int = 0, finish: str | None = None
) -> Event:
    logprobs = _logprobs(spoken, (text,)) if text else None
    choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    extra = {"usage": None} if spoken.include_usage else {}
    return Event(_data(_frame(spoken, choices=[choice], **extra)), text, tokens, bool(tokens))


def _call_chunks(spoken: Spoken, id: str, name: str, arguments: str) -> Iterator[Event]:
    head = {"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    yield _chunk(spoken, 0, {"tool_calls": [head]})
    for start in range(0, len(arguments), 8):
        piece = arguments[start : start + 8]
        delta = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
        event = _chunk(spoken, 0, delta)
        yield Event(event.data, piece, 0, True)


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _frame(spoken: Spoken, **more: Any) -> dict[str, Any]:
    return {
        "id": spoken.id,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": spoken.model,
        "system_fingerprint": "fp_scripted",
        **more,
    }


def _logprobs(spoken: Spoken, tokens: tuple[str, ...]) -> dict[str, Any] | None:
    if not spoken.logprobs:
        return None
    rows = [
        {"token": token, "logprob": spoken.reply.logprob, "bytes": list(token.encode()), "top_logprobs": []}
        for token in tokens
    ]
    return {"content": rows, "refusal": None}


def chat_usage(usage: Usage, spoken: Spoken) -> dict[str, Any]:
    if spoken.reply.usage == "nonsense":
        return {"prompt_tokens": "many", "completion_tokens": None, "total_tokens": 1.5}
    return {
        "prompt_tokens": usage.all_input,
        "completion_tokens": usage.all_output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
