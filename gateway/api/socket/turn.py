"""One request on a socket, as the inference endpoint sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from gateway.api.server.asgi import Headers, Pace, too_large
from gateway.dialects.openai_responses import socket
from gateway.dialects.streams import sse
from gateway.errors import StreamBroken

_OF_ERRORS = frozenset({b"retry-after", b"retry-after-ms", b"x-should-retry", b"x-request-id"})
_LIMITS = b"x-ratelimit-"


class Turn:
    """Implements `Caller` for one request on a WebSocket. Each event of the answer is sent as a message."""

    method = "POST"
    query = b""

    def __init__(
        self, path: str, headers: Headers, body: dict[str, Any], send: Callable[[str], Awaitable[None]]
    ) -> None:
        """`send`: sends a message; it does nothing if the client has left."""
        self.path, self.headers = path, headers
        self.kept: socket.Kept | None = None
        """The conversation after the answer, if it may be continued."""
        self._body, self._send = body, send
        self._left, self._react = False, _nothing
        self._unsent = b""

    def leave(self) -> None:
        """Note that the client has disconnected."""
        self._left = True
        self._react()

    async def read(self, limit: int, pace: Pace) -> bytes:
        raw = orjson.dumps(self._body)
        if len(raw) > limit:
            raise too_large(limit)
        return raw

    def listen(self, react: Callable[[], None]) -> None:
        self._react = react
        if self._left:
            react()

    def close(self) -> None:
        self._react = _nothing

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        told = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name in _OF_ERRORS or name.startswith(_LIMITS)
        }
        await self._send(socket.refusal(status, told, body))
        await asyncio.sleep(pause_s)

    def begin(self, headers: Headers) -> None:
        """Does nothing: a message has no headers."""

    def put(self, piece: bytes) -> bool:
        self._unsent += piece
        return False

    async def drain(self) -> None:
        end = sse.boundary(self._unsent)
        block, self._unsent = self._unsent[:end], self._unsent[end:]
        for message in socket.messages(block):
            await self._send(message)

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        await self.drain()
        for message in socket.messages(self._unsent + last):
            if broken:
                message = socket.with_status(message, StreamBroken.status)
            else:
                self._keep(message)
            await self._send(message)

    def _keep(self, message: str) -> None:
        event = orjson.loads(message)
        if event.get("type") in socket.ENDS:
            self.kept = socket.kept_after(self._body, event)


def _nothing() -> None:
    """Do nothing. This is the reaction to a disconnection until another one is registered."""
