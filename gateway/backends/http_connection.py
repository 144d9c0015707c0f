"""One connection to a backend and the one response under way on it."""

from __future__ import annotations

import asyncio
from typing import Protocol

import httptools

from gateway.backends.http_response import Response
from gateway.backends.http_wire import MAX_HEAD_BYTES, check_head
from gateway.errors import BackendError, BackendGarbage, BackendTimeout, BackendUnreachable, StreamBroken

_ONE_WRITE_BYTES = 64 * 1024
"""Up to here copying head and body together is cheaper than handing both to the kernel."""
_STALE_S = 1.0
"""A reused connection lost so soon after the request, unheard, had been closed before the request came."""


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
        self.gone = False
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
        if self.gone or transport is None or transport.is_closing():
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
        what = "finish" if self._begun and self.limit >= self._deadline else "begin to answer"
        self.fail(BackendTimeout(f"{self.name} did not {what} in time", backend=self.name))

    def fail(self, error: BackendError) -> None:
        """End the response under way with `error` and drop the connection."""
        response, self._response = self._response, None
        if response is None:
            return
        self.drop()
        if self._begun:
            response.end(error)
        else:
            response.refuse(error)

    def drop(self) -> None:
        """Close it without ceremony."""
        if self._transport:
            self._transport.abort()
        self._leave()

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
                response.end(None if exc is None and not self._bounded else self._broken())
            else:
                response.refuse(self._unanswered())
        self._transport = None
        self._leave()

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self.drop()  # bytes that nobody asked for: whose answer would they be?
            return
        began = self._begun
        if not began:
            self._fed += len(data)
        failure = self._parse(data)
        if self._pieces:
            self._hand_over(response)
        if self._complete:
            self._finish(response)
        elif failure:
            self.fail(failure)
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
        if status // 100 == 1 and status != 101:
            self._interim = True
            response.headers.clear()
            return
        if self._fed > MAX_HEAD_BYTES and sum(map(_size, response.headers)) > MAX_HEAD_BYTES:
            raise self._oversized()
        self._bounded = check_head(status, response.headers, self.name)
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
        self.resume()
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
            self.drop()
        response.end()

    def _parse(self, data: bytes) -> BackendGarbage | None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._complete:
                self._surplus = True
                return None
            if isinstance(error.__context__, BackendGarbage):  # our own, raised in a callback
                return error.__context__
            return BackendGarbage(f"{self.name} sent something that is not HTTP", backend=self.name)
        if self._fed > MAX_HEAD_BYTES and not self._begun:
            return self._oversized()
        return None

    def _oversized(self) -> BackendGarbage:
        return BackendGarbage(
            f"{self.name} sent a response head of more than {MAX_HEAD_BYTES} bytes", backend=self.name
        )

    def _broken(self) -> StreamBroken:
        return StreamBroken(f"{self.name} broke off in the middle of its answer", backend=self.name)

    def _unanswered(self) -> Stale | BackendUnreachable:
        if self._fed == 0 and self._served and self.loop.time() - self._sent_at < _STALE_S:
            return Stale()
        return BackendUnreachable(f"{self.name} closed the connection without an answer", backend=self.name)

    def _leave(self) -> None:
        if not self.gone:
            self.gone = True
            self._owner.lost(self)


def _size(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1])
