"""The scripted provider in the words of OpenAI's Responses: plain, streamed as numbered events, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import orjson

from gateway.domain.money.usage import Usage
from tests.fakes.provider_answer import Event, Spoken, claimed
from tests.fakes.provider_openai import CREATED, error

__all__ = ["error", "error_event", "events", "plain"]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_REPEATED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""What a response repeats of its request, and what it says where that was silent."""

_EMPTY: dict[str, dict[str, Any]] = {
    "message": {"content": [], "status": "in_progress"},
    "reasoning": {"summary": []},
    "function_call": {"arguments": "", "status": "in_progress"},
}
"""What differs while an item has only begun."""


def error_event(message: str) -> bytes:
    said = {"type": "error", "code": "server_error", "message": message, "param": None, "sequence_number": 99}
    return _event(said).data


def plain(spoken: Spoken) -> bytes:
    return orjson.dumps(_ended(spoken))


def events(spoken: Spoken) -> Iterator[Event]:
    numbers = count()
    for event in _events(spoken):
        yield _event({**event.said, "sequence_number": next(numbers)}, event.text, event.tokens)


class _Said:
    """An event before it has its number."""

    def __init__(self, said: dict[str, Any], text: str = "", tokens: int = 0) -> None:
        self.said, self.text, self.tokens = said, text, tokens


def _events(spoken: Spoken) -> Iterator[_Said]:
    for stage in ("created", "in_progress"):
        yield _Said({"type": f"response.{stage}", "response": _response(spoken, "in_progress", [])})
    for place, item in enumerate(_output(spoken)):
        at: dict[str, Any] = {"output_index": place}
        begun = {**item, **_EMPTY[item["type"]]}
        yield _Said({"type": "response.output_item.added", **at, "item": begun})
        inner: dict[str, Any] = {"item_id": item["id"], **at}
        match item["type"]:
            case "reasoning":
                yield from _reasoned(spoken, item, inner)
            case "message":
                yield from _written(spoken, item, inner)
            case _:
                yield from _called(spoken, item, inner)
        yield _Said({"type": "response.output_item.done", **at, "item": item})
    if spoken.reply.done:
        ended = _ended(spoken)
        yield _Said({"type": f"response.{ended['status']}", "response": ended})


def _reasoned(spoken: Spoken, item: dict[str, Any], inner: dict[str, Any]) -> Iterator[_Said]:
    at, (part,) = {**inner, "summary_index": 0}, item["summary"]
    yield _Said({"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}})
    for token in spoken.reasoning or (part["text"],):
        yield _Said(_delta(spoken, "reasoning_summary_text", at, token), tokens=1)
    yield _Said({"type": "response.reasoning_summary_text.done", **at, "text": part["text"]})
    yield _Said({"type": "response.reasoning_summary_part.done", **at, "part": part})


def _written(spoken: Spoken, item: dict[str, Any], inner: dict[str, Any]) -> Iterator[_Said]:
    at, (part,) = {**inner, "content_index": 0}, item["content"]
    yield _Said({"type": "response.content_part.added", **at, "part": {**part, "text": "", "logprobs": []}})
    for token in _padded(spoken):
        logprobs = _logprobs(spoken, (token,))
        yield _Said({**_delta(spoken, "output_text", at, token), "logprobs": logprobs}, token, 1)
    done = {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": part["logprobs"]}
    yield _Said(done)
    yield _Said({"type": "response.content_part.done", **at, "part": part})


def _called(spoken: Spoken, item: dict[str, Any], inner: dict[str, Any]) -> Iterator[_Said]:
    arguments = item["arguments"]
    for start in range(0, len(arguments), 8):
        piece = arguments[start : start + 8]
        yield _Said(_delta(spoken, "function_call_arguments", inner, piece), piece, 0)
    done = {"type": "response.function_call_arguments.done", **inner, "name": item["name"], "arguments": arguments}
    yield _Said(done)


def _delta(spoken: Spoken, kind: str, at: dict[str, Any], text: str) -> dict[str, Any]:
    """Pieces carry noise, so that their length does not betray them, unless the client does not want it."""
    said = {"type": f"response.{kind}.delta", **at, "delta": text}
    if (spoken.body.get("stream_options") or {}).get("include_obfuscation") is False:
        return said
    return {**said, "obfuscation": "x" * (16 - len(text) % 16)}


def _padded(spoken: Spoken) -> tuple[str, ...]:
    """The tokens, the first with the padding that is asked for."""
    if not spoken.tokens:
        return ()
    return (spoken.tokens[0] + " " * spoken.reply.huge, *spoken.tokens[1:])


def _output(spoken: Spoken) -> list[dict[str, Any]]:
    """The whole items, in order."""
    number, items = spoken.id.removeprefix("chatcmpl-"), list[dict[str, Any]]()
    thought = "".join(spoken.reasoning) or spoken.reply.message.get("reasoning_content")
    if thought:
        item = {"id": f"rs_{number}", "type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]}
        sealed = "reasoning.encrypted_content" in (spoken.body.get("include") or ())
        items.append({**item, "encrypted_content": "gAAAAscripted"} if sealed else item)
    calls = _calls(spoken)
    if spoken.tokens or not calls:
        logprobs = _logprobs(spoken, spoken.tokens)
        part = {"type": "output_text", "annotations": [], "logprobs": logprobs, "text": "".join(_padded(spoken))}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
        items.append({**message, "content": [part]})
    for place, (id, name, arguments) in enumerate(calls):
        call = {"id": f"fc_{number}_{place}", "type": "function_call", "call_id": id, "name": name}
        items.append({**call, "arguments": arguments})
    status = "incomplete" if spoken.finish in _INCOMPLETE else "completed"
    return [item if item["type"] == "reasoning" else {**item, "status": status} for item in items]


def _calls(spoken: Spoken) -> list[tuple[str, str, str]]:
    """Id, name and arguments of every call."""
    given = [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in spoken.reply.message.get("tool_calls") or ()
    ]
    return [*given, spoken.call] if spoken.call else given


def _ended(spoken: Spoken) -> dict[str, Any]:
    if spoken.finish == "failed":
        failure = {"code": "server_error", "message": "scripted failure"}
        return {**_response(spoken, "failed", []), "error": failure}
    reason = _INCOMPLETE.get(spoken.finish)
    body = _response(spoken, "incomplete" if reason else "completed", _output(spoken))
    body["incomplete_details"] = {"reason": reason} if reason else None
    usage = claimed(spoken.usage, spoken.reply)
    if usage is not None:
        body["usage"] = _usage(usage, spoken)
    return body


def _response(spoken: Spoken, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    repeated = {
        name: silent if spoken.body.get(name) is None else spoken.body[name] for name, silent in _REPEATED.items()
    }
    return {
        "id": spoken.id.replace("chatcmpl-", "resp_"),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": spoken.model,
        "output": output,
        "service_tier": "default",
        "usage": None,
        **repeated,
    }


def _logprobs(spoken: Spoken, tokens: tuple[str, ...]) -> list[dict[str, Any]]:
    if "message.output_text.logprobs" not in (spoken.body.get("include") or ()):
        return []
    return [
        {"token": token, "logprob": spoken.reply.logprob, "bytes": list(token.encode()), "top_logprobs": []}
        for token in tokens
    ]


def _usage(usage: Usage, spoken: Spoken) -> dict[str, Any]:
    if spoken.reply.usage == "nonsense":
        return {"input_tokens": "many", "output_tokens": None, "total_tokens": 1.5}
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return {
        "input_tokens": usage.all_input,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": written},
        "output_tokens": usage.all_output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total,
    }


def _event(value: dict[str, Any], text: str = "", tokens: int = 0) -> Event:
    data = b"event: " + value["type"].encode() + b"\ndata: " + orjson.dumps(value) + b"\n\n"
    return Event(data, text, tokens, bool(text or tokens))
