"""The provider of a chaos run, a process of its own: does what each request says, and remembers every call of it.

`python -m loadtests.chaos_provider` prints its port. `POST /NAME/v1/chat/completions` is a call of the backend NAME;
`GET /calls` tells them all.
"""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import asdict, dataclass
from typing import Any

import httptools
import orjson
import uvloop

from loadtests.chaos_mix import Step, parse_ask

INPUT_TOKENS = 25
"""That every prompt is said to have."""
_SHAPE = b'{"id":"chatcmpl-chaos","object":"chat.completion.chunk","created":1,"model":"scripted",'


@dataclass(slots=True)
class Call:
    """One call as the provider saw it."""

    number: int
    """The request's."""
    backend: str
    id: str
    """What the gateway calls it."""
    at: float
    stream: bool
    status: int = 0
    sent: int = 0
    """Tokens that were written to the socket."""
    whole: bool = False
    """So was the end of the answer, with its usage."""
    hung_up: bool = False


class Provider:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._of: dict[int, int] = {}

    def begin(self, path: str, headers: dict[bytes, bytes], body: bytes) -> tuple[Call, Step]:
        asked = orjson.loads(body)
        number, steps = parse_ask(asked)
        nth = self._of[number] = self._of.get(number, -1) + 1
        id = headers.get(b"x-request-id", b"").decode()
        call = Call(number, path.split("/")[1], id, time.time(), bool(asked.get("stream")))
        self.calls.append(call)
        return call, steps[min(nth, len(steps) - 1)]


class _Connection(asyncio.Protocol):
    """One call at a time; timers instead of tasks, so that the provider leaves the processor to the gateway."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._parser = httptools.HttpRequestParser(self)
        self._call: Call | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        if self._call:
            self._call.hung_up = True

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path, self._headers, self._body = b"", dict[bytes, bytes](), b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"GET":
            self._whole(200, orjson.dumps([asdict(call) for call in self._provider.calls]))
            return
        self._call, self._step = self._provider.begin(self._path.decode(), self._headers, self._body)
        step = self._step
        if step.cut == -1:
            self._drop()
        elif step.status != 200:
            self._call.status = step.status
            self._whole(step.status, b'{"error":{"message":"scripted","type":"server_error"}}')
            self._call = None
        elif self._call.stream:
            self._begin_stream()
        else:
            self._later(self._plain)

    def _later(self, what: Any) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._step.drip_s, what)

    def _whole(self, status: int, body: bytes) -> None:
        self._transport.write(b"HTTP/1.1 %d Scripted\r\ncontent-type: application/json\r\n" % status)
        if status == 429:
            self._transport.write(b"retry-after: 0.05\r\n")
        self._transport.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))

    def _drop(self) -> None:
        self._call = None
        self._transport.close()

    def _plain(self) -> None:
        call, step = self._call, self._step
        assert call
        call.status = 200
        text = b" ".join(b"t%d" % n for n in range(step.tokens))
        body = (
            b'{"id":"chatcmpl-chaos","object":"chat.completion","created":1,"model":"scripted","choices":[{"index":0,'
            b'"message":{"role":"assistant","content":"%b"},"finish_reason":"stop"}],"usage":%b}'
        ) % (text, _usage(step))
        if step.cut is not None:
            call.sent = step.cut
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            self._transport.write(head + body[: body.index(b"t%d" % step.cut)])
            self._drop()
            return
        self._whole(200, body)
        call.sent, call.whole = step.tokens, True
        self._call = None

    def _begin_stream(self) -> None:
        assert self._call
        self._call.status = 200
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        if self._step.cut == 0:
            self._transport.write(head)
            self._drop()
            return
        self._transport.write(head)
        self._event(_choice(b'{"role":"assistant","content":""}'))
        self._later(self._next)

    def _next(self) -> None:
        call, step = self._call, self._step
        assert call
        if call.sent == step.cut:
            self._drop()
        elif call.sent < step.tokens:
            self._event(_choice(b'{"content":"t%d "}' % call.sent))
            call.sent += 1
            self._later(self._next)
        else:
            self._event(_choice(b"{}", b'"stop"'))
            self._event(_SHAPE + b'"choices":[],"usage":%b}' % _usage(step))
            self._event(b"[DONE]")
            self._transport.write(b"0\r\n\r\n")
            call.whole, self._call = True, None

    def _event(self, data: bytes) -> None:
        event = b"data: %b\n\n" % data
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))


def _choice(delta: bytes, finish: bytes = b"null") -> bytes:
    return _SHAPE + b'"choices":[{"index":0,"delta":%b,"finish_reason":%b}]}' % (delta, finish)


def _usage(step: Step) -> bytes:
    total = INPUT_TOKENS + step.tokens
    return b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (INPUT_TOKENS, step.tokens, total)


async def main() -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    provider = Provider()
    server = await loop.create_server(lambda: _Connection(provider), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()


if __name__ == "__main__":
    uvloop.run(main())
