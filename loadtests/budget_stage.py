"""A scripted provider and its clients on one event loop, so that both accounts of every token are of one moment.

A question says its number and how long its answer would be; the provider streams a token a chunk at an even pace.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httptools
import orjson

from gateway.runtime.tasks import Tasks

MAX_TOKENS = 1000
MEDIAN_TOKENS = 80
SIGMA = 1.0
"""Of the logarithm: one answer in eight is three times as long as the median, one in a hundred ten times."""
PROMPT_TOKENS = 17
"""What the gateway counts for a question; the provider says the same, so that all that differs is the answers."""
PATIENCE_S = 60.0
MODEL = "scripted"


def lengths(seed: int) -> Callable[[int], int]:
    """The true length of answer number N."""

    def length(number: int) -> int:
        drawn = random.Random(f"{seed} {number}").lognormvariate(math.log(MEDIAN_TOKENS), SIGMA)
        return min(max(round(drawn), 1), MAX_TOKENS)

    return length


@dataclass(slots=True)
class Call:
    """One call as the provider saw it."""

    number: int
    length: int
    sent: int = 0
    """Tokens that were written to the socket."""
    over: bool = False
    whole: bool = False
    """It came to its own end, or to the `max_tokens` that it was asked with."""


@dataclass(slots=True)
class Refusal:
    at_s: float
    headroom: int
    """Tokens of the budget that neither was delivered nor will be by the answers under way."""


class Stage:
    """What both sides know."""

    def __init__(self, budget: int, seed: int, pace_s: float) -> None:
        self.budget, self.pace_s = budget, pace_s
        self.length = lengths(seed)
        self.calls: list[Call] = []
        self.refusals: list[Refusal] = []
        self.statuses: dict[str, int] = {}
        """How requests ended, seen by the client."""
        self.began = time.monotonic()
        self.last_end = 0.0
        self.curve: list[tuple[float, int, int]] = []
        """Seconds, tokens delivered, streams open."""
        self._numbers = iter(range(10**9))

    def next_number(self) -> int:
        return next(self._numbers)

    @property
    def delivered(self) -> int:
        return sum(PROMPT_TOKENS + call.sent for call in self.calls)

    @property
    def open(self) -> int:
        return sum(not call.over for call in self.calls)

    def headroom(self) -> int:
        return self.budget - sum(PROMPT_TOKENS + (call.sent if call.over else call.length) for call in self.calls)

    def note(self) -> None:
        self.curve.append((round(time.monotonic() - self.began, 3), self.delivered, self.open))

    def ended(self, call: Call) -> None:
        if not call.over:
            call.over = True
            self.last_end = time.monotonic()


class Provider(asyncio.Protocol):
    """One connection, one call at a time; ends a stream when its client hangs up."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._call: Call | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        if self._call:
            self._stage.ended(self._call)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        asked = orjson.loads(self._body)
        _, number, length = asked["messages"][-1]["content"].split()
        allowed = min(int(length), asked.get("max_tokens") or MAX_TOKENS)
        self._call = Call(int(number), allowed)
        self._stage.calls.append(self._call)
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self._event(_choice(b'{"role":"assistant","content":""}'))
        self._later()

    def _later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._stage.pace_s, self._next)

    def _next(self) -> None:
        call = self._call
        assert call
        if call.sent < call.length:
            self._event(_choice(b'{"content":"t%d "}' % call.sent))
            call.sent += 1
            self._later()
            return
        self._event(_choice(b"{}", b'"stop"'))
        counts = (PROMPT_TOKENS, call.sent, PROMPT_TOKENS + call.sent)
        usage = b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % counts
        self._event(_SHAPE + b'"choices":[],"usage":%b}' % usage)
        self._event(b"[DONE]")
        self._transport.write(b"0\r\n\r\n")
        call.whole, self._call = True, None
        self._stage.ended(call)

    def _event(self, data: bytes) -> None:
        event = b"data: %b\n\n" % data
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))


_SHAPE = b'{"id":"chatcmpl-budget","object":"chat.completion.chunk","created":1,"model":"scripted",'


def _choice(delta: bytes, finish: bytes = b"null") -> bytes:
    return _SHAPE + b'"choices":[{"index":0,"delta":%b,"finish_reason":%b}]}' % (delta, finish)


class _Asking(asyncio.Protocol):
    """One request of a client."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._tail = b""
        self.status = 0
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result("broken" if self.status == 200 else "lost")

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._tail = (self._tail + body)[-2000:]

    def on_message_complete(self) -> None:
        if self.ended.done():
            return
        if self.status != 200:
            code = orjson.loads(self._tail)["error"]["code"] if self._tail.startswith(b"{") else ""
            self.ended.set_result("refused" if code == "insufficient_quota" else f"{self.status} {code}")
        elif not self._tail.endswith(b"data: [DONE]\n\n"):
            self.ended.set_result("error event")
        else:
            self.ended.set_result("truncated" if b'"finish_reason":"length"' in self._tail else "whole")


class Clients:
    """So many at a time, each asking again as soon as it has its answer, until nobody is admitted any more."""

    def __init__(self, stage: Stage, port: int, key: str, count: int, pause_s: float = 0.25) -> None:
        self._stage, self._port, self._count, self._pause_s = stage, port, count, pause_s
        self._head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: budget\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {key}\r\nconnection: close\r\n"
        )
        self._refused_since = [0.0] * count
        """When each client last asked and was refused."""

    async def run(self) -> None:
        self._stage.began = time.monotonic()
        tasks = Tasks()
        for place in range(self._count):
            tasks.spawn(self._work(place), f"client {place}")
        while len(tasks):
            self._stage.note()
            await tasks.drain(0.1)
        self._stage.note()

    @property
    def _through(self) -> bool:
        """Was everyone refused who asked after the last stream had ended?"""
        stage = self._stage
        return not stage.open and bool(stage.calls) and min(self._refused_since) > stage.last_end

    async def _work(self, place: int) -> None:
        number = self._stage.next_number()
        while not self._through:
            asked_at = time.monotonic()
            how = await self._ask(number)
            self._stage.statuses[how] = self._stage.statuses.get(how, 0) + 1
            if how == "refused":
                at_s = asked_at - self._stage.began
                self._stage.refusals.append(Refusal(round(at_s, 3), self._stage.headroom()))
                self._refused_since[place] = asked_at
            if how in ("whole", "truncated", "broken", "error event"):
                number = self._stage.next_number()
            else:  # the same question again
                await asyncio.sleep(self._pause_s)

    async def _ask(self, number: int) -> str:
        body = orjson.dumps(
            {
                "model": MODEL,
                "max_tokens": MAX_TOKENS,
                "stream": True,
                "messages": [{"role": "user", "content": f"question {number:06d} {self._stage.length(number):04d}"}],
            }
        )
        try:
            _, asking = await asyncio.get_running_loop().create_connection(_Asking, "127.0.0.1", self._port)
        except OSError:
            return "lost"
        asking.transport.write(self._head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asking.ended
        except TimeoutError:
            return "hung"
        finally:
            asking.transport.abort()
