"""The clients of a chaos run: one connection a request, so many at a time, and what each of them was given."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httptools

from gateway.runtime.tasks import Tasks
from loadtests.chaos_mix import DEADLINE_S, Ask

PATIENCE_S = DEADLINE_S + 8.0
"""A request that has not ended after that hangs: its own deadline, and the longest that a process is frozen."""
PAUSE_S = 0.05
"""Before a client that found nobody listening, or was refused, tries again."""
_TOKEN = re.compile(rb"t\d+[ \"]")


@dataclass(slots=True)
class Received:
    """What became of one request, seen from its client."""

    number: int
    kind: str
    status: int = 0
    """0: no head arrived."""
    tokens: int = 0
    whole: bool = False
    """The terminating event, or the last byte of a plain answer, was read."""
    left: bool = False
    """The client hung up, as it was told to."""
    hung: bool = False
    code: str = ""
    id: str = ""
    """The gateway's, from its head."""
    seconds: float = 0.0


class _Reader(asyncio.Protocol):
    """One exchange."""

    def __init__(self, ask: Ask, received: Received) -> None:
        self._ask, self.received = ask, received
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self.received.id = value.decode()

    def on_headers_complete(self) -> None:
        self.received.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.ended.done():
            return  # what arrives together with the chunk at which it left, it does not read
        self._body += body
        leave = self._ask.leave_after
        if leave and self._ask.stream and self.count() >= leave:
            self.leave()

    def on_message_complete(self) -> None:
        received = self.received
        if self.ended.done():
            return
        if received.status == 200:
            received.whole = not self._ask.stream or self._body.endswith(b"data: [DONE]\n\n")
        elif found := re.search(rb'"code":\s*"(\w+)"', self._body):
            received.code = found[1].decode()
        self._end()

    def count(self) -> int:
        return len(_TOKEN.findall(self._body))

    def leave(self) -> None:
        self.received.left = not self.ended.done()
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            if self.received.status == 200:
                self.received.tokens = self.count()
            self.ended.set_result(None)
        self.transport.abort()


class Clients:
    """`concurrency` of them work off `asks`; `received` has one entry for each that was sent."""

    def __init__(self, port: int, key: str, asks: Iterator[Ask], concurrency: int) -> None:
        self._port, self._concurrency = port, concurrency
        self._head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: chaos\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {key}\r\nx-thriftgate-deadline: {DEADLINE_S:g}\r\n"
        )
        self._asks = asks
        self._tasks = Tasks()
        self.received: list[Received] = []
        self.in_flight = 0
        self.turned_away = 0
        """Connections that nobody took; their requests were sent later."""

    async def run(self) -> None:
        """Until every request has ended, one way or the other."""
        for number in range(self._concurrency):
            self._tasks.spawn(self._work(), f"client {number}")
        while len(self._tasks):
            await self._tasks.drain(1.0)

    async def _work(self) -> None:
        for ask in self._asks:
            while (made := await self._connect(ask)) is None:
                self.turned_away += 1
                await _pause()
            await self._ask(ask, made)
            if made.received.status >= 400:
                await _pause()

    async def _connect(self, ask: Ask) -> _Reader | None:
        loop, received = asyncio.get_running_loop(), Received(ask.number, ask.kind)
        try:
            async with asyncio.timeout(5):
                _, reader = await loop.create_connection(lambda: _Reader(ask, received), "127.0.0.1", self._port)
        except (OSError, TimeoutError):
            return None
        return reader

    async def _ask(self, ask: Ask, reader: _Reader) -> None:
        body, received = ask.body(), reader.received
        self.in_flight += 1
        began = time.monotonic()
        head = f"{self._head}x-thriftgate-session: {ask.session}\r\ncontent-length: {len(body)}\r\n\r\n"
        reader.transport.write(head.encode() + body)
        try:
            async with asyncio.timeout(self._patience(ask)):
                await asyncio.shield(reader.ended)
        except TimeoutError:
            received.hung = ask.leave_after is None or (ask.stream and ask.leave_after > 0)
            reader.leave()
        finally:
            self.in_flight -= 1
            received.seconds = time.monotonic() - began
            self.received.append(received)
            reader.transport.abort()

    def _patience(self, ask: Ask) -> float:
        """A client that is to leave before it has read anything does so soon after it has asked."""
        if ask.leave_after is not None and not (ask.stream and ask.leave_after):
            return 0.01 + 0.01 * (ask.number % 5)
        return PATIENCE_S


async def _pause() -> None:
    await asyncio.sleep(PAUSE_S * random.uniform(1, 2))
