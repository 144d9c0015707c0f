"""One connection to a backend and the one response under way on it."""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol, Self

import httptools

from gateway.backends.http_wire import MAX_HEAD_BYTES, check_head
from gateway.errors import BackendError, BackendGarbage, BackendTimeout, BackendUnreachable, StreamBroken

_BUFFER_BYTES = 256 * 1024
"""Body bytes that may wait for a slow consumer before reading pauses."""
_ONE_WRITE_BYTES = 64 * 1024
"""Up to here copying head and body together is cheaper than handing both to the kernel."""
_STALE_S = 1.0
"""A reused connection lost so soon after the request, unheard, had been closed before the request came."""

_BODILESS = frozenset((204, 304))


class Stale(Exception):
    """An idle connection turned out closed before the backend saw the request: send it again on another."""


class Owner(Protocol):
    """The pool, as a connection sees it."""

    name: str

    def release(self, connection: Connection) -> None:
        """Its response is whole and it can serve again."""
        ...

    def lost(self, connection: Connection) -> None:
        """It is gone or useless; told once."""
        ...


class Response:
    """An HTTP response whose body is still coming. Iterate it or `read` it, in one task; always `aclose` it."""

    __slots__ = ("_connection", "_failure", "_ready", "_size", "_waiter", "_wanted", "_whole", "headers", "status")

    def __init__(self, connection: Connection, head: asyncio.Future[None]) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """Names in lower case."""
        self._connection: Connection | None = connection
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
            name = self._connection.name if self._connection else "the backend"
            await self.aclose()
            raise BackendGarbage(f"{name} sent more than the {limit} bytes an answer may have")
        return self._take()

    async def aclose(self) -> None:
        """Unless the body is whole, drop the connection at once, so that the backend sees the hang-up."""
        if self._connection:
            self._connection.fail(StreamBroken(f"{self._connection.name}: closed before the answer ended"))

    async def _more(self) -> None:
        if self._failure:
            raise self._failure
        connection = self._connection
        assert connection, "neither whole nor failed, so it is still connected"
        connection.resume()
        self._waiter = connection.loop.create_future()
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
        self._connection = None
        self._failure = failure
        self._whole = failure is None
        self._wake()

    def refuse(self, reason: Exception) -> None:
        """It never began: the request itself fails."""
        self._connection = None
        if self._waiter and not self._waiter.done():
            self._waiter.set_exception(reason)

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.Protocol):
    """Bytes in, responses out, one at a time. `limit` (loop time) is when the pool calls `expire`."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.name = owner.name
        self.loop = loop
        self.limit = 0.0
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._deadline = 0.0
        self._served = 0
        self._sent_at = 0.0
        self._gone = False
        self._paused = False
        self._response: Response | None = None
        self._fed = 0
        self._begun = self._interim = self._bounded = self._reusable = self._complete = self._surplus = False
        self._body_end = 0
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # called by the parser, without a Python frame in between
        self._parser = httptools.HttpResponseParser(self)

    async def exchange(self, head: bytes, body: bytes, limit: float, deadline: float) -> Response:
        """Send a request; its response, once the head is there.

        Raises Stale, BackendUnreachable, BackendTimeout, BackendGarbage. The first body byte is due at `limit`
        (loop time), the end at `deadline`.
        """
        transport = self._transport
        if self._gone or transport is None or transport.is_closing():
            self._leave()
            raise Stale
        started = self.loop.create_future()
        response = self._response = Response(self, started)
        self.limit, self._deadline = limit, deadline
        self._fed = 0
        self._begun = self._interim = self._complete = self._surplus = False
        self._sent_at = self.loop.time()
        if len(body) <= _ONE_WRITE_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        try:
            await started
        except asyncio.CancelledError:
            await response.aclose()
            raise
        return response

    def expire(self) -> None:
        """`limit` has passed."""
        began = self._begun and self.limit >= self._deadline
        self.fail(BackendTimeout(f"{self.name} did not {'finish' if began else 'begin to answer'} in time"))

    def fail(self, error: BackendError) -> None:
        """End the response under way with `error` and drop the connection."""
        response, self._response = self._response, None
        if response is None:
            return
        self._drop()
        if self._begun:
            response.end(error)
        else:
            response.refuse(error)

    def drop(self) -> None:
        """Close an idle connection."""
        self._drop()

    def resume(self) -> None:
        """The consumer is ready for more."""
        if self._paused and self._transport:
            self._paused = False
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream transport, as create_connection gives

    def connection_lost(self, exc: Exception | None) -> None:
        response, self._response = self._response, None
        if response is not None:
            if self._begun:
                whole = exc is None and not self._bounded
                response.end(None if whole else StreamBroken(f"{self.name} broke off in the middle of its answer"))
            elif self._fed == 0 and self._served and self.loop.time() - self._sent_at < _STALE_S:
                response.refuse(Stale())
            else:
                response.refuse(BackendUnreachable(f"{self.name} closed the connection without an answer"))
        self._transport = None
        self._leave()

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self._drop()  # bytes that nobody asked for: whose answer would they be?
            return
        began = self._begun
        if not began:
            self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._complete:
                self._garbage(error)
                return
            self._surplus = True
        if not self._begun and self._fed > MAX_HEAD_BYTES:
            self._garbage(None)
            return
        if self._pieces:
            self._hand_over(response)
        if self._complete:
            self._finish(response)
        elif self._begun and not began:
            response.start()

    # httptools

    def on_message_begin(self) -> None:
        if self._complete:
            self._surplus = True  # a second response to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._response and not self._begun:  # neither trailers nor surplus
            self._response.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        response = self._response
        if response is None or self._begun:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._interim = True
            response.headers.clear()
            return
        if self._fed > MAX_HEAD_BYTES and sum(map(_size, response.headers)) > MAX_HEAD_BYTES:
            raise BackendGarbage(f"{self.name} sent a response head beyond all measure")
        self._bounded = check_head(response.headers, self.name) or status in _BODILESS
        self._reusable = self._parser.should_keep_alive()
        response.status = status
        self._begun = True

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif not self._complete:
            self._complete = True
            self._body_end = len(self._pieces)

    # inside

    def _hand_over(self, response: Response) -> None:
        pieces = self._pieces
        if self._surplus:
            del pieces[self._body_end :]
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self.limit = self._deadline
        if response.push(data) and not self._complete and not self._paused and self._transport:
            self._paused = True
            self._transport.pause_reading()

    def _finish(self, response: Response) -> None:
        self._response = None
        self._served += 1
        transport = self._transport
        if (
            self._reusable
            and not self._surplus
            and transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size() == 0  # else it answered before it had read the request
        ):
            self._owner.release(self)
        else:
            self._drop()
        response.end()

    def _garbage(self, error: Exception | None) -> None:
        cause = error.__context__ if error else None
        if isinstance(cause, BackendGarbage):
            self.fail(cause)
        else:
            self.fail(BackendGarbage(f"{self.name} sent something that is not HTTP"))

    def _drop(self) -> None:
        if self._transport:
            self._transport.abort()
        self._leave()

    def _leave(self) -> None:
        if not self._gone:
            self._gone = True
            self._owner.lost(self)


def _size(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1])


__all__ = ["Connection", "Response", "Stale"]
