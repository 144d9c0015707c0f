"""A scripted provider that costs next to nothing: OpenAI's dialect on a bare protocol, in a process of its own.

`python -m loadtests.upstream` prints its port, serves until its standard input closes, and tells at /counts what it
sent. It also takes OTLP exports at /v1/traces and /v1/metrics, so that a gateway has somewhere to send them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import uvloop

from loadtests import agent_answers
from loadtests.questions import MARK, PACE_S, Dialect, piece_of, text_of, tokens_of

_CREATED = 1_763_000_000
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_LAST = b"0\r\n\r\n"
_NINES = b"9" * 8
_DIALECTS: dict[bytes, Dialect] = {b"POST %b" % path.encode(): name for name, path in agent_answers.PATHS.items()}
_STAMP = b"8" * 19


@dataclass(slots=True)
class Counts:
    """What has been sent, to the last byte of each answer."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cut_off: int = 0
    """Answers whose client went before their end."""
    exports: int = 0


def _chunk(delta: dict[str, str], finish: str | None = None, usage: bytes = b"") -> bytes:
    """One event, framed as an HTTP chunk, with nines for the number."""
    event: dict[str, Any] = {
        "id": "chatcmpl-" + "9" * 8, "object": "chat.completion.chunk", "created": _CREATED, "model": "loadtest",
        "choices": [] if usage else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
    }  # fmt: skip
    data = b"data: " + orjson.dumps(event) + b"\n\n"
    return framed(data.replace(b'"usage":null', b'"usage":' + usage) if usage else data)


def framed(data: bytes) -> bytes:
    """`data` as one chunk of a chunked HTTP body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _plain() -> bytes:
    body = {
        "id": "chatcmpl-" + "9" * 8, "object": "chat.completion", "created": _CREATED, "model": "loadtest",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text_of(99_999_999), "refusal": None},
                     "logprobs": None, "finish_reason": "stop"}],
        "system_fingerprint": "fp_loadtest",
    }  # fmt: skip
    return orjson.dumps(body)[:-1]


def _usage(number: int, base: int) -> bytes:
    told = tokens_of(number, base)
    return b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (*told, sum(told))


class Answers:
    """Ready-made bytes in which only the number, the usage and the time remain to be put."""

    def __init__(self) -> None:
        self._plain = _plain()
        self._streams: dict[tuple[int, bool], list[bytes]] = {}
        self._bursts: dict[int, bytes] = {}
        self._calls: dict[tuple[Dialect, int], bytes] = {}

    def plain(self, number: int, base: int) -> bytes:
        body = self._plain.replace(_NINES, b"%08d" % number) + b',"usage":' + _usage(number, base) + b"}"
        return _HEAD % len(body) + body

    def stream(self, number: int, chunks: int, *, stamped: bool) -> list[bytes]:
        """The content chunks and the finishing one; stamped: with a place for the time."""
        key = (chunks, stamped)
        if key not in self._streams:
            tail = "@" + _STAMP.decode() if stamped else ""
            events = [_chunk({"content": piece_of(99_999_999, index) + tail}) for index in range(chunks)]
            self._streams[key] = [*events, _chunk({}, "stop")]
        return [event.replace(_NINES, b"%08d" % number) for event in self._streams[key]]

    def burst(self, number: int, chunks: int) -> bytes:
        """All of an unstamped stream's events in one piece."""
        if chunks not in self._bursts:
            self._bursts[chunks] = b"".join(self.stream(99_999_999, chunks, stamped=False))
        return self._bursts[chunks].replace(_NINES, b"%08d" % number)

    def calls(self, dialect: Dialect, number: int, base: int, chunks: int) -> bytes:
        """All events of an answer that ends with a tool call, in one piece."""
        key = (dialect, chunks)
        if key not in self._calls:
            self._calls[key] = b"".join(map(framed, agent_answers.made(*key)))
        return agent_answers.filled(self._calls[key], number, base)

    def ending(self, number: int, base: int) -> bytes:
        """The usage event and [DONE]."""
        return _chunk({}, usage=_usage(number, base)).replace(_NINES, b"%08d" % number) + framed(b"data: [DONE]\n\n")


class Upstream(asyncio.Protocol):
    """One connection; requests one after the other."""

    def __init__(self, counts: Counts, answers: Answers) -> None:
        self.counts, self.answers = counts, answers
        self.buffer = b""
        self.left: list[bytes] = []
        self.timer: asyncio.TimerHandle | None = None
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.counts.cut_off += 1

    def data_received(self, data: bytes) -> None:
        self.buffer = data = self.buffer + data if self.buffer else data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = data[:end].lower()
            at = head.find(b"\r\ncontent-length:")
            size = int(head[at + 17 : at + 37].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(data) < end + 4 + size:
                break
            self.buffer = data[end + 4 + size :]
            self.answer(data[: data.find(b" HTTP/1.1")], data[end + 4 : end + 4 + size])
            data = self.buffer

    def answer(self, line: bytes, body: bytes) -> None:
        mark = MARK.search(body)
        if mark is None:
            self.aside(line)
            return
        number, kind, chunks, base = int(mark[1]), mark[2], int(mark[3]), int(mark[4])
        if kind == b"plain":
            self.transport.write(self.answers.plain(number, base))
            self.count(number, base)
        elif kind == b"burst":
            events = self.answers.burst(number, chunks)
            self.transport.write(b"".join((_STREAM, events, self.answers.ending(number, base), _LAST)))
            self.count(number, base)
        elif kind == b"calls":
            calls = self.answers.calls(_DIALECTS[line], number, base, chunks)
            self.transport.write(b"".join((_STREAM, calls, _LAST)))
            self.count(number, base)
        else:
            self.transport.write(_STREAM)
            self.left = self.answers.stream(number, chunks, stamped=True)
            self.left.reverse()
            self.timer = self.loop.call_later(PACE_S, self.next, number, base)

    def next(self, number: int, base: int) -> None:
        """The next chunk of a paced stream."""
        event = self.left.pop()
        if self.left:
            self.transport.write(event.replace(_STAMP, b"%019d" % time.monotonic_ns()))
            self.timer = self.loop.call_later(PACE_S, self.next, number, base)
            return
        self.timer = None
        self.transport.write(event + self.answers.ending(number, base) + _LAST)
        self.count(number, base)

    def count(self, number: int, base: int) -> None:
        told, counts = tokens_of(number, base), self.counts
        counts.requests += 1
        counts.input_tokens += told.input
        counts.output_tokens += told.output

    def aside(self, line: bytes) -> None:
        """What is not a question."""
        if line == b"GET /counts":
            body = orjson.dumps(asdict(self.counts))
        elif line in (b"POST /v1/traces", b"POST /v1/metrics"):
            self.counts.exports += 1
            body = b"{}"
        elif line == b"GET /v1/models":
            body = b'{"object":"list","data":[{"id":"loadtest","object":"model"}]}'
        else:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            return
        self.transport.write(_HEAD % len(body) + body)


async def serve(protocol: Callable[[], Upstream]) -> None:
    """Print the port and serve until standard input closes. `protocol`: makes the protocol of one connection."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            ended.set()

    loop.add_reader(sys.stdin.fileno(), read)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    counts, answers = Counts(), Answers()
    uvloop.run(serve(lambda: Upstream(counts, answers)))
