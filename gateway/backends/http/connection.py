"""One connection to a backend and the response in progress on it."""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

import httptools

from gateway.backends.http.response import Response
from gateway.backends.http.wire import MAX_HEAD_BYTES, check_head
from gateway.errors import BackendError, BackendGarbage, BackendTimeout, BackendUnreachable, StreamBroken
from gateway.runtime.write_batcher import WriteBatcher, send_at_once

_ONE_WRITE_BYTES = 64 * 1024
"""Maximum body size in bytes for sending head and body in one write. For a larger body, copying the body takes longer
than a second write."""


class Stale(Exception):
    """Raised if an idle connection was closed before the request was written. The request can be sent on another
    connection."""


class Owner(Protocol):
    """The methods of the pool that a connection calls."""

    name: str
    outgoing: WriteBatcher

    def release(self, connection: Connection) -> None:
        """Called when the response on `connection` is complete. The connection can be reused."""
        ...

    def lost(self, connection: Connection) -> None:
        """Called once when `connection` has been closed or has become unusable."""
        ...

    def watch(self, when: float) -> None:
        """Called when a connection gets a new time limit, `when` (loop time). The owner may have to wake up earlier
        than planned."""
        ...


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection. It carries one request at a time. The pool calls `expire` when `limit` (loop time) has
    passed."""

    __slots__ = (
        "_begun",
        "_body_end",
        "_bounded",
        "_complete",
        "_deadline",
        "_fed",
        "_feed",
        "_headers",
        "_interim",
        "_owner",
        "_parser",
        "_paused",
        "_pieces",
        "_received_at",
        "_response",
        "_reusable",
        "_stall_s",
        "_surplus",
        "_transport",
        "gone",
        "limit",
        "loop",
        "name",
        "on_body",
    )

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.name = owner.name
        self.loop = loop
        self.limit = 0.0
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._deadline = self._stall_s = 0.0
        self.gone = False
        self._paused = False
        self._response: Response | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        """The headers of the response in progress. A provider sends some twenty of them."""
        self._fed = 0
        self._received_at = 0.0
        self._begun = self._interim = self._bounded = self._reusable = self._complete = self._surplus = False
        self._body_end = 0
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # the parser calls `append` directly, without a Python function in between
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data

    def send(
        self, head: bytes, body: bytes, *, limit: float, deadline: float, stall_timeout: float = math.inf
    ) -> Response:
        """Send a request. Returns its response at once; the response's future `begun` is done when the head has
        arrived. Raises Stale if the connection was closed before.

        `limit`: loop time before which the body's first byte must arrive. `deadline`: loop time before which the last
        byte must arrive. `stall_timeout`: maximum seconds between two pieces of the body.
        """
        transport = self._transport
        if self.gone or transport is None or transport.is_closing():
            self._leave()
            raise Stale
        response = self._response = Response(self)
        self._headers = response.headers
        self.limit, self._deadline, self._stall_s = limit, deadline, stall_timeout
        self._fed = 0
        self._received_at = 0.0
        self._begun = self._interim = self._complete = self._surplus = False
        if len(body) <= _ONE_WRITE_BYTES:
            self._owner.outgoing.add(transport, head + body, self.loop)
        else:
            transport.writelines((head, body))
        return response

    def expire(self, now: float) -> None:
        """Called when `limit` has passed. If the body is still arriving, extend the limit. Otherwise, fail the
        response."""
        if not self._received_at:
            what = "begin to answer"
        elif now >= self._deadline:
            what = "finish"
        else:
            # while reading is paused, the backend is not the cause of the silence
            silent_since = now if self._paused else self._received_at
            self.limit = min(silent_since + self._stall_s, self._deadline)
            if self.limit > now:
                return
            what = "go on"
        self.fail(BackendTimeout(f"{self.name} did not {what} in time", backend=self.name))

    def fail(self, error: BackendError) -> None:
        """End the current response with `error` and drop the connection."""
        response, self._response = self._response, None
        if response is None:
            return
        self.drop()
        if self._begun:
            response.end(error)
        else:
            response.refuse(error)

    def drop(self) -> None:
        """Close the connection at once, without a TLS shutdown."""
        if self._transport:
            self._transport.abort()
        self._leave()

    def half_close(self) -> bool:
        """Close only the sending direction of the connection. The response still arrives, but the connection cannot be
        reused. Returns False if the connection is encrypted or closing."""
        transport = self._transport
        if transport is None or transport.is_closing() or not transport.can_write_eof():
            return False
        self._reusable = False
        self._owner.outgoing.flush()
        transport.write_eof()
        return True

    def resume(self) -> None:
        """Continue to read from the connection. Called when the reader of the body is ready for more data."""
        if self._paused and self._transport:
            self._paused = False
            self._received_at = self.loop.time()
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream transport, as create_connection gives
        send_at_once(transport)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        response, self._response = self._response, None
        if response is not None:
            if self._begun:
                response.end(None if exc is None and not self._bounded else self._broken())
            else:
                # The connection may have been closed before the request arrived, or because of the request. The two
                # cases cannot be distinguished, so the request is not sent again here. The caller counts attempts and
                # decides about another attempt.
                response.refuse(self._unanswered())
        self._transport = None
        self._leave()

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self.drop()  # data that arrives without a request belongs to no response
            return
        began = self._begun
        if not began:
            self._fed += len(data)
        failure = None
        try:
            self._feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            failure = self._misread(error)
        if not began and not self._begun and self._fed > MAX_HEAD_BYTES and failure is None:
            failure = self._oversized()
        if pieces := self._pieces:
            if self._received_at and not (self._complete or failure or len(pieces) > 1):  # a usual piece of a stream
                self._received_at, self._fed = self.loop.time(), 0
                if response.push(pieces.pop()):
                    self._pause()
                return
            self._hand_over(response)
        elif began:  # the data was a chunk extension or a trailer
            self._fed += len(data)
            if self._fed > MAX_HEAD_BYTES and failure is None:
                failure = self._oversized()
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
        if not self._begun:  # the data is neither a trailer nor a surplus response
            self._headers.append((name.lower(), value))

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
        self._bounded, encoded = check_head(status, response.headers, self.name)
        if encoded:
            response.unpack()
        self._reusable = self._parser.should_keep_alive()
        response.status = status
        self._begun = True

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif not self._complete:
            self._complete = True
            self._body_end = len(self._pieces)

    # internal methods

    def _hand_over(self, response: Response) -> None:
        pieces = self._pieces
        if self._surplus:
            del pieces[self._body_end :]
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._complete:  # the response is complete, so there is no timeout to extend and no reading to pause
            response.push(data)
            return
        now = self.loop.time()
        if not self._received_at:
            self.limit = min(self._deadline, now + self._stall_s)
            self._owner.watch(self.limit)
        self._received_at, self._fed = now, 0
        if response.push(data):
            self._pause()

    def _pause(self) -> None:
        if not self._paused and self._transport:
            self._paused = True
            self._transport.pause_reading()

    def _finish(self, response: Response) -> None:
        self._response = None
        if self._paused:
            self.resume()
        transport = self._transport
        if (
            self._reusable
            and not self._surplus
            and transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size()
            == 0  # if the buffer is not empty, the server answered before it had read the request
        ):
            self._owner.release(self)
        else:
            self.drop()
        response.end()

    def _misread(self, error: Exception) -> BackendGarbage | None:
        """The error for data that the parser rejected. None if the response was already complete, because the data then
        do not belong to it."""
        if self._complete:
            self._surplus = True
            return None
        if isinstance(error.__context__, BackendGarbage):  # our own error, raised in a callback
            return error.__context__
        return BackendGarbage(f"{self.name} sent something that is not HTTP", backend=self.name)

    def _oversized(self) -> BackendGarbage:
        return BackendGarbage(
            f"{self.name} sent a response head, or trailers, of more than {MAX_HEAD_BYTES} bytes", backend=self.name
        )

    def _broken(self) -> StreamBroken:
        return StreamBroken(f"{self.name} broke off in the middle of its answer", backend=self.name)

    def _unanswered(self) -> BackendUnreachable:
        return BackendUnreachable(f"{self.name} closed the connection without an answer", backend=self.name)

    def _leave(self) -> None:
        if not self.gone:
            self.gone = True
            self._owner.lost(self)


def _size(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1])
