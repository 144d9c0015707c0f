"""A response body. The connection writes it, and the task that handles the request reads it."""

from __future__ import annotations

import asyncio
from typing import Protocol, Self

from gateway.backends.http.coding import DecodedBody
from gateway.domain.answer import Sink
from gateway.errors import BackendError, BackendGarbage, StreamBroken

_BUFFER_BYTES = 64 * 1024
"""Maximum bytes of the body that wait for a slow reader. While more bytes wait, the connection is not read."""


class Source(Protocol):
    """The interface of the connection for a response."""

    name: str
    loop: asyncio.AbstractEventLoop

    def resume(self) -> None:
        """Continue to read from the connection. Called when the reader of the body is ready for more data."""
        ...

    def fail(self, error: BackendError) -> None:
        """End the response with `error` and drop the connection."""
        ...

    def half_close(self) -> bool:
        """Close only the sending direction of the connection. Returns False if that is impossible."""
        ...


class Response:
    """Implements `client.Response`. Iterate over the response, or call `pipe_to` or `read`, in one task only. Always
    call `aclose` at the end."""

    __slots__ = (
        "_failure",
        "_name",
        "_ready",
        "_size",
        "_source",
        "_take",
        "_unpacking",
        "_waiter",
        "_wanted",
        "begun",
        "headers",
        "status",
        "whole",
    )

    def __init__(self, source: Source) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """Names are in lower case."""
        self.begun: asyncio.Future[None] = source.loop.create_future()
        """Done when the response head has arrived. If the response failed before that, the future contains the error.
        """
        self._name = source.name
        self._source: Source | None = source
        self._waiter: asyncio.Future[None] | None = None
        self._take: Sink | None = None
        self._unpacking: DecodedBody | None = None
        self._ready: list[bytes] = []
        self._size = 0
        self._wanted = 1
        """Number of received bytes after which the reader of the body is woken."""
        self.whole = False
        """Whether all of the body has arrived."""
        self._failure: BackendError | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header `name` (lower case); None if it is missing."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The bytes that arrived since the previous call. Raises StreamBroken, BackendTimeout, BackendGarbage."""
        if not self._ready and not self.whole:
            await self._more()
        if not self._ready:
            raise StopAsyncIteration
        return self._taken()

    async def pipe_to(self, take: Sink) -> bool:
        """Pass data to `take` as it arrives, until `take` returns False. Returns True if the body may have more data,
        and False at its end. Raises the errors of iterating and of `take`."""
        if self._ready and not take(self._taken()):
            return True
        if self.whole:
            return False
        self._take = take
        try:
            await self._arrival()
        finally:
            stopped, self._take = self._take is None, None
        if self._failure and not stopped:  # otherwise the next call raises the failure
            raise self._failure
        return stopped

    async def read(self, limit: int) -> bytes:
        """Return the whole body. Raises BackendGarbage if the body exceeds `limit` bytes, and the errors of
        iterating."""
        if not self.whole and self._size <= limit:
            self._wanted = limit + 1
            await self._more()
            if self._failure:  # the data that arrived is incomplete
                raise self._failure
        if self._size > limit:
            await self.aclose()
            raise BackendGarbage(f"{self._name} sent more than the {limit} bytes allowed", backend=self._name)
        return self._taken()

    def arrived(self) -> bytes:
        """The part of the body that arrived before `read` failed."""
        return b"".join(self._ready)

    def half_close(self) -> bool:
        """Close only the sending direction of the connection. Data that the backend has sent still arrives. Returns
        False if that is impossible."""
        return self._source is not None and self._source.half_close()

    async def aclose(self) -> None:
        """Release the connection. If the body is incomplete, close it at once, so that the backend notices."""
        if self._source:
            why = f"the answer of {self._name} was not read to its end"
            self._source.fail(StreamBroken(why, backend=self._name))

    async def _more(self) -> None:
        await self._arrival()
        if self._failure and not self._ready:
            raise self._failure

    async def _arrival(self) -> None:
        if self._failure:
            raise self._failure
        source = self._source
        assert source, "neither whole nor failed, so it is still connected"
        source.resume()
        self._waiter = source.loop.create_future()
        await self._waiter

    def _taken(self) -> bytes:
        ready = self._ready
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        self._ready, self._size = [], 0
        return data

    # called by the connection

    def unpack(self) -> None:
        """Decode all body bytes that arrive from now on. Raises BackendGarbage for an unknown coding."""
        self._unpacking = DecodedBody(self.headers, self._name)

    def push(self, data: bytes) -> bool:
        """Append body bytes. Returns True if too many bytes are waiting for the reader of the body."""
        if self._unpacking is not None:
            data = self._unpacked(data, self._unpacking)
            if not data:
                return False
        if self._take is not None:
            try:
                if self._take(data):
                    return False
            except BaseException as error:  # raise it in the task that called `pipe_to`, not in the event loop
                if self._waiter and not self._waiter.done():
                    self._waiter.set_exception(error)
            self._take = None
            self._wake()
            return False
        self._ready.append(data)
        self._size = size = self._size + len(data)
        if size < self._wanted:
            return False
        if self._waiter is not None:
            self._wake()
        return size >= _BUFFER_BYTES

    def _unpacked(self, data: bytes, unpacking: DecodedBody) -> bytes:
        try:
            return unpacking.feed(data)
        except BackendGarbage as error:
            if self._source:
                self._source.fail(error)
            return b""

    def start(self) -> None:
        """Called when the head has arrived. A part of the body may also have arrived."""
        if not self.begun.done():
            self.begun.set_result(None)

    def end(self, failure: BackendError | None = None) -> None:
        """Called when the response has ended. `failure`: the error that ended it; None: the response is complete."""
        if self._failure is not None:  # an error in decoding was stored earlier
            return
        if failure is None and self._unpacking is not None:
            try:
                self._unpacking.end()
            except StreamBroken as error:
                failure = error
        self._source = None
        self._failure = failure
        self.whole = failure is None
        self.start()
        if self._waiter is not None:
            self._wake()

    def refuse(self, reason: Exception) -> None:
        """Called when the request failed before a response head arrived. `reason` is raised in the waiting task."""
        self._source = None
        if not self.begun.done():
            self.begun.set_exception(reason)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
