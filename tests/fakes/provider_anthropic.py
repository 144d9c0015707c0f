"""The scripted provider in Anthropic's words: messages, plain and streamed, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson

from gateway.domain.money.usage import Usage
from tests.fakes.provider_answer import Event, Spoken, claimed, pieces
from tests.fakes.provider_script import Fail

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def error(fail: Fail) -> bytes:
    kind = fail.code or _ERRORS.get(fail.status, "api_error")
    return orjson.dumps(
        {"type": "error", "error": {"type": kind, "message": fail.message}, "request_id": "req_scripted"}
    )


def plain(spoken: Spoken) -> bytes:
    content = [
        {**block, "input": orjson.Fragment(arguments(block))} if "input" in block else block
        for block in spoken.reply.blocks or _blocks(spoken)
    ]
    body = {**_message(spoken, content, _stop(spoken)), "stop_sequence": spoken.reply.stop_sequence or None}
    usage = claimed(spoken.usage, spoken.reply)
    if usage is not None:
        body["usage"] = _usage(usage, spoken, usage.all_output)
    return orjson.dumps(body)


def _blocks(spoken: Spoken) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    if spoken.reasoning:
        content.append({"type": "thinking", "thinking": "".join(spoken.reasoning), "signature": "scripted"})
    if spoken.tokens:
        content.append({"type": "text", "text": spoken.text})
    if spoken.call:
        id, name, written = spoken.call
        content.append({"type": "tool_use", "id": id, "name": name, "input": written})
    return content


def arguments(block: dict[str, Any]) -> str:
    """The input of a call as it is written."""
    given = block["input"]
    return given if isinstance(given, str) else orjson.dumps(given).decode()


def events(spoken: Spoken) -> Iterator[Event]:
    for number, event in enumerate(_events(spoken)):
        if spoken.reply.padded and event.data.endswith(b"}\n\n"):
            yield replace(event, data=event.data[:-3] + b" " * (number % 15) + b"}\n\n")
        else:
            yield event


def _events(spoken: Spoken) -> Iterator[Event]:
    usage = claimed(spoken.usage, spoken.reply)
    start = _message(spoken, [], None)
    if usage is not None:
        start["usage"] = _usage(usage, spoken, 1)
    yield _event({"type": "message_start", "message": start})
    yield _event({"type": "ping"})
    if spoken.reply.blocks:
        for index, block in enumerate(spoken.reply.blocks):
            yield from _shown(index, block)
    else:
        yield from _spoken(spoken)
    stop = {"stop_reason": _stop(spoken), "stop_sequence": spoken.reply.stop_sequence or None}
    end: dict[str, Any] = {"type": "message_delta", "delta": stop}
    if usage is not None:
        last = _usage(usage, spoken, usage.all_output)
        end["usage"] = {name: last[name] for name in ("output_tokens", "output_tokens_details") if name in last}
    yield _event(end)
    if spoken.reply.done:
        yield _event({"type": "message_stop"})


def _spoken(spoken: Spoken) -> Iterator[Event]:
    index = 0
    if spoken.reasoning:
        deltas = [({"type": "thinking_delta", "thinking": token}, "", 1) for token in spoken.reasoning]
        signed = ({"type": "signature_delta", "signature": "scripted"}, "", 0)
        yield from _block(index, {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed])
        index += 1
    if spoken.tokens:
        yield from _block(index, {"type": "text", "text": ""}, _text_deltas(spoken))
        index += 1
    if spoken.call:
        id, name, written = spoken.call
        yield from _block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, _pieces(written))


def _shown(index: int, block: dict[str, Any]) -> Iterator[Event]:
    """A block of any kind: what streams is begun empty, the rest comes whole."""
    match block["type"]:
        case "text":
            deltas = [({"type": "text_delta", "text": word}, word, 1) for word in pieces(block["text"])]
            deltas += [({"type": "citations_delta", "citation": each}, "", 0) for each in block.get("citations") or ()]
            yield from _block(index, {"type": "text", "text": ""}, deltas)
        case "thinking":
            deltas = [({"type": "thinking_delta", "thinking": word}, "", 1) for word in pieces(block["thinking"])]
            deltas += [({"type": "signature_delta", "signature": block["signature"]}, "", 0)] * bool(block["signature"])
            yield from _block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        case "tool_use" | "server_tool_use":
            yield from _block(index, {**block, "input": {}}, _pieces(arguments(block)))
        case _:
            yield from _block(index, block, [])


def _pieces(written: str) -> list[tuple[dict[str, Any], str, int]]:
    """The first says nothing; a call without arguments has no others."""
    parts = ["", *(written[start : start + 8] for start in range(0, len(written), 8) if written != "{}")]
    return [({"type": "input_json_delta", "partial_json": part}, part, 0) for part in parts]


def error_event(message: str) -> bytes:
    return _event({"type": "error", "error": {"type": "overloaded_error", "message": message}}).data


def _text_deltas(spoken: Spoken) -> list[tuple[dict[str, Any], str, int]]:
    texts = list(spoken.tokens)
    texts[0] += " " * spoken.reply.huge
    return [({"type": "text_delta", "text": text}, text, 1) for text in texts]


def _block(index: int, block: dict[str, Any], deltas: list[tuple[dict[str, Any], str, int]]) -> Iterator[Event]:
    yield _event({"type": "content_block_start", "index": index, "content_block": block})
    for delta, text, tokens in deltas:
        yield _event({"type": "content_block_delta", "index": index, "delta": delta}, text, tokens, True)
    yield _event({"type": "content_block_stop", "index": index})


def _message(spoken: Spoken, content: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
    return {
        "id": spoken.id.replace("chatcmpl-", "msg_"),
        "type": "message",
        "role": "assistant",
        "model": spoken.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
    }


def _stop(spoken: Spoken) -> str:
    if spoken.reply.stop_sequence:
        return "stop_sequence"
    return _STOP.get(spoken.finish, spoken.finish)


def _usage(usage: Usage, spoken: Spoken, output: int) -> dict[str, Any]:
    if spoken.reply.usage == "nonsense":
        return {"input_tokens": "many", "output_tokens": None}
    thought = min(output, usage.reasoning_tokens)
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_5m_tokens + usage.cache_write_1h_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_5m_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
        "output_tokens": output,
        "service_tier": "standard",
        **({"output_tokens_details": {"thinking_tokens": thought}} if thought else {}),
    }


def _event(value: dict[str, Any], text: str = "", tokens: int = 0, content: bool = False) -> Event:
    data = b"event: " + value["type"].encode() + b"\ndata: " + orjson.dumps(value) + b"\n\n"
    return Event(data, text, tokens, content)
