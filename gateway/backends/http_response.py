"""The body of a response on its way from the connection that reads it to the task that consumes it."""

from __future__ import annotations

import asyncio
from typing import Protocol, Self

from gateway.errors import BackendError, BackendGarbage, StreamBroken

_BUFFER_BYTES = 256 * 1024
"""Body bytes that may wait for a slow consumer before reading pauses."""


class Source(Protocol):
    """The connection, as a response sees it."""

    name: str
    loop: asyncio.AbstractEventLoop

    def resume(self) -> None:
        """The consumer is ready for more."""
        ...

    def fail(self, error: BackendError) -> None:
        """End the response with `error` and drop the connection."""
        ...


class Response:
    """An HTTP response whose body is still coming. Iterate it or `read` it, in one task; always `aclose` it."""

    __slots__ = (
        "_failure",
        "_name",
        "_ready",
        "_size",
        "_source",
        "_waiter",
        "_wanted",
        "_whole",
        "headers",
        "status",
    )

    def __init__(self, source: Source, head: asyncio.Future[None]) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """Names in lower case."""
        self._name = source.name
        self._source: Source | None = source
        self._waiter: asyncio.Future[None] | None = head
        self._ready: list[bytes] = []
        self._size = 0
        self._wanted = 1
        """Bytes worth waking the consumer for."""
        self._whole = False
        self._failure: BackendError | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first value of `name` (lower case)."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """What arrived since the last piece. Raises StreamBroken, BackendTimeout, BackendGarbage."""
        if not self._ready and not self._whole:
            await self._more()
        if not self._ready:
            raise StopAsyncIteration
        return self._take()

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises BackendGarbage when it is longer than `limit` bytes, and what iterating raises."""
        self._wanted = limit + 1
        if not self._whole and self._size <= limit:
            await self._more()
            if self._failure:  # whatever did arrive is no whole body
                raise self._failure
        if self._size > limit:
            await self.aclose()
            raise BackendGarbage(f"{self._name} sent more than the {limit} bytes allowed", backend=self._name)
        return self._take()

    async def aclose(self) -> None:
        """Unless the body is whole, drop the connection at once, so that the backend sees the hang-up."""
        if self._source:
            why = f"the answer of {self._name} was not read to its end"
            self._source.fail(StreamBroken(why, backend=self._name))

    async def _more(self) -> None:
        if self._failure:
            raise self._failure
        source = self._source
        assert source, "neither whole nor failed, so it is still connected"
        source.resume()
        self._waiter = source.loop.create_future()
        await self._waiter
        if self._failure and not self._ready:
            raise self._failure

    def _take(self) -> bytes:
        ready = self._ready
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        self._ready, self._size = [], 0
        return data

    def push(self, data: bytes) -> bool:
        """Body bytes arrived. Returns whether too many are waiting."""
        self._ready.append(data)
        self._size += len(data)
        if self._size >= self._wanted:
            self._wake()
        return self._size >= max(_BUFFER_BYTES, self._wanted)

    def start(self) -> None:
        """The head is there (and some of the body may be)."""
        self._wake()

    def end(self, failure: BackendError | None = None) -> None:
        """Nothing more will come."""
        self._source = None
        self._failure = failure
        self._whole = failure is None
        self._wake()

    def refuse(self, reason: Exception) -> None:
        """It never began: the request itself fails."""
        self._source = None
        if self._waiter and not self._waiter.done():
            self._waiter.set_exception(reason)

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)
