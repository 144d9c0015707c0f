"""Answers to coding agents: a stream of text that ends with a tool call, in three dialects, and their judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from loadtests.questions import Dialect, Tokens, piece_of, tokens_of

PATHS: dict[Dialect, str] = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
_NINES = 99_999_999
_INPUT, _OUTPUT, _TOTAL = 7_777_777, 6_666_666, 5_555_555
"""The places of the number of the question and of its tokens, in answers that are made once."""


def call_of(number: int) -> list[str]:
    """The pieces of the arguments of the tool call that ends an answer."""
    return ['{"path":', ' "/src/part_', f"{number:08d}", '.py"}']


def _chat(texts: list[str], call: list[str]) -> list[dict[str, Any]]:
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_763_000_000, "model": "loadtest"}
    function = {"name": "tool_1", "arguments": ""}
    named = [{"index": 0, "id": f"call_{_NINES}", "type": "function", "function": function}]
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        *({"content": text} for text in texts),
        {"tool_calls": named},
        *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in call),
    ]
    usage = {"prompt_tokens": _INPUT, "completion_tokens": _OUTPUT, "total_tokens": _TOTAL}
    ended: list[tuple[dict[str, Any], str | None]] = [(delta, None) for delta in deltas] + [({}, "tool_calls")]
    return [
        *({**about, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} for delta, finish in ended),
        {**about, "choices": [], "usage": usage},
    ]


def _messages(texts: list[str], call: list[str]) -> list[dict[str, Any]]:
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "loadtest-messages", "content": []}
    started = {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": _INPUT, "output_tokens": 1}}
    tool = {"type": "tool_use", "id": f"toolu_{_NINES}", "name": "tool_1", "input": {}}

    def block(index: int, begin: dict[str, Any], deltas: list[dict[str, str]]) -> Iterable[dict[str, Any]]:
        yield {"type": "content_block_start", "index": index, "content_block": begin}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}

    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**about, **started}},
        *block(0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in texts]),
        *block(1, tool, [{"type": "input_json_delta", "partial_json": piece} for piece in call]),
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": _OUTPUT}},
        {"type": "message_stop"},
    ]


def _responses(texts: list[str], call: list[str]) -> list[dict[str, Any]]:
    def response(status: str, output: list[dict[str, Any]], usage: dict[str, int] | None) -> dict[str, Any]:
        about = {"id": "resp_1", "object": "response", "created_at": 1_763_000_000, "model": "loadtest-responses"}
        return {**about, "status": status, "error": None, "tools": [], "output": output, "usage": usage}

    text, at = "".join(texts), {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    function = {"id": "fc_1", "type": "function_call", "call_id": f"call_{_NINES}", "name": "tool_1"}
    called, where = {**function, "arguments": "".join(call)}, {"item_id": "fc_1", "output_index": 1}
    usage = {"input_tokens": _INPUT, "output_tokens": _OUTPUT, "total_tokens": _TOTAL}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response("in_progress", [], None)},
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **at, "delta": piece} for piece in texts),
        {"type": "response.output_text.done", **at, "text": text},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.output_item.added", "output_index": 1, "item": {**function, "arguments": ""}},
        *({"type": "response.function_call_arguments.delta", **where, "delta": piece} for piece in call),
        {"type": "response.function_call_arguments.done", **where, "arguments": "".join(call)},
        {"type": "response.output_item.done", "output_index": 1, "item": called},
        {"type": "response.completed", "response": response("completed", [message, called], usage)},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


_EVENTS: dict[Dialect, Callable[[list[str], list[str]], list[dict[str, Any]]]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
}


def made(dialect: Dialect, chunks: int) -> list[bytes]:
    """The events of an answer, with placeholders for the question's number and tokens."""
    events = _EVENTS[dialect]([piece_of(_NINES, index) for index in range(chunks)], call_of(_NINES))
    if dialect == "chat":
        return [*(b"data: %b\n\n" % orjson.dumps(event) for event in events), b"data: [DONE]\n\n"]
    return [b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event)) for event in events]


def filled(answer: bytes, number: int, base: int) -> bytes:
    """`answer` with the number and the tokens of a question, as long as before: blanks may precede a number."""
    told = tokens_of(number, base)
    answer = answer.replace(b"%d" % _NINES, b"%08d" % number)
    for place, value in ((_INPUT, told.input), (_OUTPUT, told.output), (_TOTAL, sum(told))):
        answer = answer.replace(b"%d" % place, b"%7d" % value)
    return answer


class Read(NamedTuple):
    """What a client reads of a stream."""

    texts: list[str]
    arguments: str
    finish: list[str]
    tokens: Tokens


def _read_chat(events: list[dict[str, Any]]) -> Read:
    choices = [choice for event in events for choice in event["choices"]]
    deltas = [choice["delta"] for choice in choices]
    calls = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls") or ()]
    usage = events[-1]["usage"]
    return Read(
        [delta["content"] for delta in deltas if delta.get("content")], "".join(calls),
        [choice["finish_reason"] for choice in choices if choice["finish_reason"]],
        Tokens(usage["prompt_tokens"], usage["completion_tokens"]),
    )  # fmt: skip


def _read_messages(events: list[dict[str, Any]]) -> Read:
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    ends = [event for event in events if event["type"] == "message_delta"]
    started = events[0]["message"]["usage"]
    return Read(
        [delta["text"] for delta in deltas if delta["type"] == "text_delta"],
        "".join(delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta"),
        [event["delta"]["stop_reason"] for event in ends],
        Tokens(started["input_tokens"], ends[-1]["usage"]["output_tokens"]),
    )


def _read_responses(events: list[dict[str, Any]]) -> Read:
    def deltas(kind: str) -> list[str]:
        return [event["delta"] for event in events if event["type"] == f"response.{kind}.delta"]

    last = events[-1]["response"]
    return Read(
        deltas("output_text"), "".join(deltas("function_call_arguments")),
        [event["type"] for event in events if event["type"] == "response.completed"],
        Tokens(last["usage"]["input_tokens"], last["usage"]["output_tokens"]),
    )  # fmt: skip


_READ: dict[Dialect, tuple[Callable[[list[dict[str, Any]]], Read], str, bytes]] = {
    "chat": (_read_chat, "tool_calls", b"data: [DONE]"),
    "messages": (_read_messages, "tool_use", b'data: {"type":"message_stop"}'),
    "responses": (_read_responses, "response.completed", b"}"),
}
"""Dialect → what reads its events, the finish that is right, and how the last event ends."""


def fault_in_answer(dialect: Dialect, body: bytes, number: int, base: int, chunks: int) -> str:
    """Why the events in `body` are not the right answer to question `number`; empty when they are."""
    read, finish, end = _READ[dialect]
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ") and line != b"data: [DONE]"]
    try:
        found = read([orjson.loads(line) for line in lines])
    except (ValueError, KeyError, IndexError, TypeError):
        return f"not a stream of {dialect}: {body[-200:]!r}"
    if found.texts != [piece_of(number, index) for index in range(chunks)]:
        return f"{len(found.texts)} of {chunks} chunks, or another question's: {found.texts[:2]} for {number}"
    if found.arguments != "".join(call_of(number)):
        return f"the tool call has {found.arguments!r}"
    if found.finish != [finish] or not body.rstrip().endswith(end):
        return f"finish is {found.finish}, the end {body[-80:]!r}"
    return "" if found.tokens == tokens_of(number, base) else f"usage is {found.tokens}"
