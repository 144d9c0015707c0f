"""A scripted provider that speaks five dialects: each answer is made once, so that serving it costs next to nothing.

`python -m loadtests.dialect_upstream` prints its port and serves until its standard input closes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson
import uvloop

from gateway.dialects.bedrock_converse.event_stream import event as frame
from loadtests.upstream import Answers, Counts, Upstream, framed, serve

BACKENDS = ("chat", "messages", "responses", "gemini", "converse")
SHAPES = ("small", "32k", "burst", "paced")
"""An answer of 200 characters; one of 32 KB; a stream whose chunks come at once; one whose chunks come one by one."""
CHUNKS = {"burst": 100, "paced": 20}
_BYTES = {"small": 200, "32k": 32 * 1024}
PACE_S = 0.003
MARK = re.compile(rb"\[\[(small|32k|burst|paced) \d+\]\]")
"""What the provider reads of a question: the shape of the answer."""
_WORDS = (
    " The",
    " scale",
    " was",
    " «level»",
    ",",
    " naïve",
    "\n",
    ' "so"',
    " 100",
    " x\\y",
    " and",
    " the",
    " ledger",
)
SAID = b"ledger"
"""A word of every answer, so that the client can tell an answer from an error."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The events of a stream: before the text, one for each piece of text, after the text."""

    begin: list[bytes]
    pieces: list[bytes]
    end: list[bytes]


def _data(value: Any) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(value)


def _named(value: dict[str, Any]) -> bytes:
    return b"event: %b\n%b" % (value["type"].encode(), _data(value))


def _chat_usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens}


_CHAT = {"id": "chatcmpl-1", "created": 1_763_000_000, "model": "m", "system_fingerprint": "fp_1"}


def _chat(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {**_CHAT, "object": "chat.completion", "choices": [choice], "usage": _chat_usage(40)}


def _chat_stream(texts: list[str]) -> Stream:
    def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({**_CHAT, "object": "chat.completion.chunk", "choices": [choice]})

    counted = {**_CHAT, "object": "chat.completion.chunk", "choices": [], "usage": _chat_usage(len(texts))}
    begin = chunk({"role": "assistant", "content": ""})
    return Stream(
        [begin], [chunk({"content": text}) for text in texts], [chunk({}, "stop"), _data(counted), b"data: [DONE]\n\n"]
    )


def _messages(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    usage = {"input_tokens": 20, "output_tokens": 40}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
    return {**about, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def _messages_stream(texts: list[str]) -> Stream:
    start = {**_messages(""), "content": [], "stop_reason": None, "usage": {"input_tokens": 20, "output_tokens": 1}}
    begin = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    deltas = [{"type": "text_delta", "text": text} for text in texts]
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    return Stream(
        [_named({"type": "message_start", "message": start}), _named(begin)],
        [_named({"type": "content_block_delta", "index": 0, "delta": delta}) for delta in deltas],
        [
            _named({"type": "content_block_stop", "index": 0}),
            _named({"type": "message_delta", "delta": stop, "usage": {"output_tokens": len(texts)}}),
            _named({"type": "message_stop"}),
        ],
    )


def _responses(text: str, *, status: str = "completed") -> dict[str, Any]:
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    about: dict[str, Any] = {
        "id": "resp_1", "object": "response", "created_at": 1_763_000_000, "model": "m", "status": status,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None,
        "instructions": None, "metadata": {}, "output": [_item(text, status)] if text else [],
    }  # fmt: skip
    usage = {"input_tokens": 20, "output_tokens": 40, "total_tokens": 60, **details}
    return {**about, "usage": usage if text else None}


def _item(text: str, status: str = "completed") -> dict[str, Any]:
    about = {"id": "msg_1", "type": "message", "role": "assistant", "status": status}
    return {**about, "content": [_part(text)] if text else []}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _responses_stream(texts: list[str]) -> Stream:
    text, where = "".join(texts), {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    begun = {"type": "response.output_item.added", "output_index": 0, "item": _item("", "in_progress")}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _responses("", status="in_progress")},
        {"type": "response.in_progress", "response": _responses("", status="in_progress")},
        begun,
        {"type": "response.content_part.added", **where, "part": _part("")},
        *({"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []} for piece in texts),
        {"type": "response.output_text.done", **where, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **where, "part": _part(text)},
        {"type": "response.output_item.done", "output_index": 0, "item": _item(text)},
        {"type": "response.completed", "response": _responses(text)},
    ]
    written = [_named({**event, "sequence_number": number}) for number, event in enumerate(events)]
    return Stream(written[:4], written[4:-4], written[-4:])


def _gemini(text: str, finish: str | None = "STOP", tokens: int = 40) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    usage = {"promptTokenCount": 20, "candidatesTokenCount": tokens, "totalTokenCount": 20 + tokens}
    ended = {"finishReason": finish} if finish else {}
    about = {"usageMetadata": usage, "modelVersion": "m", "responseId": "r1"}
    return {"candidates": [candidate | ended], **about}


def _gemini_stream(texts: list[str]) -> Stream:
    pieces = [_data(_gemini(text, None, place)) for place, text in enumerate(texts, 1)]
    return Stream([], pieces, [_data(_gemini("", tokens=len(texts)))])


_CONVERSE_COUNTS = {
    "usage": {"inputTokens": 20, "outputTokens": 40, "totalTokens": 60},
    "metrics": {"latencyMs": 7},
}


def _converse(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"text": text}]}
    return {"output": {"message": message}, "stopReason": "end_turn", **_CONVERSE_COUNTS}


def _converse_stream(texts: list[str]) -> Stream:
    index = {"contentBlockIndex": 0}
    return Stream(
        [frame("messageStart", {"role": "assistant"})],
        [frame("contentBlockDelta", {**index, "delta": {"text": text}}) for text in texts],
        [
            frame("contentBlockStop", index),
            frame("messageStop", {"stopReason": "end_turn"}),
            frame("metadata", _CONVERSE_COUNTS),
        ],
    )


_PLAIN: dict[str, Callable[[str], dict[str, Any]]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
    "gemini": _gemini,
    "converse": _converse,
}
_STREAMS = {
    "chat": _chat_stream,
    "messages": _messages_stream,
    "responses": _responses_stream,
    "gemini": _gemini_stream,
    "converse": _converse_stream,
}


def words(number: int) -> list[str]:
    return [_WORDS[index % len(_WORDS)] for index in range(number)]


def events(backend: str, shape: str) -> Stream:
    """The events of a stream in the dialect of `backend`."""
    return _STREAMS[backend](words(CHUNKS[shape]))


def _head(content_type: bytes, more: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n" % (content_type, more)


def _answer(backend: str, shape: str) -> list[bytes]:
    """What is written for one answer, in the order of the writes. A paced stream has several writes."""
    if shape not in CHUNKS:
        text = "".join(words(_BYTES[shape]))[: _BYTES[shape]]
        body = orjson.dumps(_PLAIN[backend](text))
        return [_head(b"application/json", b"content-length: %d" % len(body)) + body]
    kind = b"application/vnd.amazon.eventstream" if backend == "converse" else b"text/event-stream"
    head, stream, last = _head(kind, b"transfer-encoding: chunked"), events(backend, shape), b"0\r\n\r\n"

    def chunks(each: Iterable[bytes]) -> bytes:
        return b"".join(map(framed, each))

    if shape == "burst":
        return [head + chunks([*stream.begin, *stream.pieces, *stream.end]) + last]
    return [head + chunks(stream.begin), *map(framed, stream.pieces), chunks(stream.end) + last]


class DialectUpstream(Upstream):
    """One connection. The first part of the path names the dialect."""

    answered: dict[tuple[str, str], list[bytes]]

    def answer(self, line: bytes, body: bytes) -> None:
        shape = MARK.search(body)
        if shape is None:
            self.aside(line)
            return
        backend = line.split(b" ")[1].split(b"/")[1].decode()
        first, *later = self.answered[backend, shape[1].decode()]
        self.transport.write(first)
        if later:
            self.left = later[::-1]
            self.timer = self.loop.call_later(PACE_S, self.next, 0, 0)

    def next(self, number: int, base: int) -> None:
        """The next write of a paced stream."""
        self.transport.write(self.left.pop())
        self.timer = self.loop.call_later(PACE_S, self.next, 0, 0) if self.left else None


def main() -> None:
    counts, answers = Counts(), Answers()
    DialectUpstream.answered = {(name, shape): _answer(name, shape) for name in BACKENDS for shape in SHAPES}
    uvloop.run(serve(lambda: DialectUpstream(counts, answers)))


if __name__ == "__main__":
    main()
