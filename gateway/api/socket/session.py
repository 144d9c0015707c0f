"""One WebSocket: reads messages, makes one response at a time, and ends when the socket is idle or too old, or when
the worker shuts down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.types import Message, Receive, Send

from gateway.api.response_headers import of_error, of_id
from gateway.api.server.asgi import Headers
from gateway.api.socket.turn import Turn
from gateway.dialects.client import ClientDialect
from gateway.dialects.openai_responses import socket
from gateway.dialects.requests.body_extent import check_extent
from gateway.domain.record import new_request_id
from gateway.errors import BadRequest, GatewayError, InvalidKey, ResponseInProgress, SocketExpired
from gateway.runtime.off_loop import LARGE_BYTES, OffLoop
from gateway.runtime.tasks import Tasks
from gateway.settings.gateway import RequestLimits

NORMAL, RESTART, POLICY = 1000, 1012, 1008
"""Codes with which a socket is closed."""
MOST_KEPT_BYTES = 256 * 2**20
"""Maximum bytes of all conversations that a worker keeps for its sockets."""
LIFE_S = 3600.0
"""Longest life of a socket, as at OpenAI."""


@dataclass(slots=True)
class Space:
    """The bytes that remain for the conversations of all sockets of a worker."""

    left_bytes: int = MOST_KEPT_BYTES

    def take(self, kept: socket.Kept | None) -> bool:
        size = len(kept.items) if kept is not None else 0
        if size > self.left_bytes:
            return False
        self.left_bytes -= size
        return True

    def free(self, kept: socket.Kept | None) -> None:
        self.left_bytes += len(kept.items) if kept is not None else 0


Serve = Callable[[Turn], Coroutine[Any, Any, None]]


class Session:
    """One WebSocket from handshake to end. It also reads messages while an answer is in progress, to notice a
    disconnection.
    """

    def __init__(
        self,
        path: str,
        headers: Headers,
        receive: Receive,
        send: Send,
        *,
        serve: Serve,
        admit: Callable[[], Awaitable[object]],
        dialect: ClientDialect,
        limits: RequestLimits,
        leaving: asyncio.Event,
        turns: Tasks,
        off_loop: OffLoop,
        space: Space,
        life_s: float = LIFE_S,
    ) -> None:
        """`serve`: answers one request of the socket. `admit`: raises GatewayError when the key is no longer valid.

        `turns`: owner of the tasks that make the answers, which may continue after the client has left.
        """
        self._path, self._headers, self._receive, self._sending = path, headers, receive, send
        self._serve, self._admit, self._dialect, self._limits = serve, admit, dialect, limits
        self._leaving, self._turns, self._off_loop = leaving, turns, off_loop
        self._space, self._life_s = space, life_s
        self._kept: socket.Kept | None = None
        self._turn: Turn | None = None
        self._answering: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve the socket to its end."""
        own = Tasks()
        ends_at = asyncio.get_running_loop().time() + self._life_s
        leaving = own.spawn(_wait(self._leaving), "socket's end")
        reading = own.spawn(self._next(), "socket")
        try:
            while True:
                idle = not await self._something(reading, leaving, ends_at)
                if self._answering is not None and self._answering.done():
                    self._finish()
                if reading.done():
                    if not await self._take(reading.result()):
                        return
                    reading = own.spawn(self._next(), "socket")
                elif self._answering is None and await self._over(ends_at, idle=idle):
                    return
        finally:
            if self._turn is not None:
                self._turn.leave()
            self._space.free(self._kept)
            await own.aclose()

    async def _something(self, reading: asyncio.Task[Message], leaving: asyncio.Task[None], ends_at: float) -> bool:
        """Wait for a message. If an answer is in progress, the wait also ends with this answer. Otherwise, the wait
        also ends when the worker shuts down.

        Returns False if the socket has reached its maximum idle time or age.
        """
        if self._answering is not None:
            await asyncio.wait({reading, self._answering}, return_when=asyncio.FIRST_COMPLETED)
            return True
        allowed_s = min(self._limits.socket_idle, ends_at - asyncio.get_running_loop().time())
        done, _ = await asyncio.wait(
            {reading, leaving}, timeout=max(0.0, allowed_s), return_when=asyncio.FIRST_COMPLETED
        )
        return bool(done)

    async def _over(self, ends_at: float, *, idle: bool) -> bool:
        """Close the socket if the worker shuts down, or if the socket is too old or has been idle too long. Returns
        whether it was closed.

        Called between two answers.
        """
        if self._leaving.is_set():
            await self._close(RESTART, "the gateway restarts; connect again")
        elif asyncio.get_running_loop().time() >= ends_at:
            await self._refuse(SocketExpired(f"The socket is older than {self._life_s:g} seconds; open a new one."))
            await self._close(NORMAL, "too old")
        elif idle:
            await self._close(NORMAL, f"idle for {self._limits.socket_idle:g} seconds")
        else:
            return False
        return True

    async def _next(self) -> Message:
        return await self._receive()

    async def _take(self, message: Message) -> bool:
        """Process a message. Returns False if it was the last message of the socket."""
        if message["type"] == "websocket.disconnect":
            return False
        try:
            text = message.get("text")
            if text is None:
                raise BadRequest("A message must be text: the JSON object of a response.create.")
            fields = await self._off_loop.run(self._load, text) if len(text) > LARGE_BYTES else self._load(text)
            if fields:
                await self._begin(fields)
        except GatewayError as error:
            await self._refuse(error)
            if isinstance(error, InvalidKey):
                await self._close(POLICY, error.code)
                return False
        return True

    def _load(self, text: str) -> dict[str, Any]:
        check_extent(text.encode(), self._limits.max_items)
        return socket.load(text)

    async def _begin(self, fields: dict[str, Any]) -> None:
        if self._answering is not None:
            raise ResponseInProgress(
                "A response is in progress on this socket; wait for its last event, or open another socket."
            )
        body = socket.body_of(fields, self._kept)
        if fields.get("generate") is False:
            await self._warm(body)
            return
        self._turn = turn = Turn(self._path, self._headers, body, self._send)
        self._answering = self._turns.spawn(self._serve(turn), "answer on a socket")

    async def _warm(self, body: dict[str, Any]) -> None:
        """Answer a request whose field `generate` is false, without a call of a backend. The next request can continue
        the input of this request."""
        await self._admit()
        _, events = socket.warmed(body, new_request_id(), int(time.time()))
        self._keep(socket.kept_after(body, events[-1]))
        for event in events:
            await self._send(orjson.dumps(event).decode())

    def _finish(self) -> None:
        turn, self._turn, self._answering = self._turn, None, None
        if turn is not None and turn.kept is not None:
            self._keep(turn.kept)

    def _keep(self, kept: socket.Kept | None) -> None:
        """Replace the conversation that is kept in memory for this socket. If the memory for all sockets is used up,
        no conversation is kept, and the client must send the whole conversation again.
        """
        self._space.free(self._kept)
        self._kept = kept if self._space.take(kept) else None

    async def _refuse(self, error: GatewayError) -> None:
        request_id = new_request_id()
        headers = {name.decode(): value.decode() for name, value in [*of_error(error), *of_id(request_id)]}
        body = self._dialect.error_body(error, request_id)
        await self._send(socket.refusal(self._dialect.status(error), headers, body))

    async def _send(self, text: str) -> None:
        await self._out({"type": "websocket.send", "text": text})

    async def _close(self, code: int, reason: str) -> None:
        await self._out({"type": "websocket.close", "code": code, "reason": reason})

    async def _out(self, message: Message) -> None:
        # After a disconnection, servers raise one of these errors. The disconnection is also read as a message.
        with suppress(OSError, RuntimeError):
            await self._sending(message)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
