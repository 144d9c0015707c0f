"""uvicorn's HTTP/1.1 protocol, with a direct path for inference that uses no ASGI messages.

All other requests use uvicorn's own path. With a trivial endpoint and 1 kB in each direction, the direct path takes a
third of the CPU time of uvicorn's path: it needs no scope, no events, no second pass over headers, and no timer per
request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.api.response_headers import of_error, of_id
from gateway.api.server.asgi import Headers, Pace, by_name, stalled, too_large
from gateway.api.server.bounded_protocol import BoundedProtocol
from gateway.api.server.caller import Caller
from gateway.api.server.request_head import MAX_HEAD_BYTES, MOST_HEADERS, check_head, check_path
from gateway.dialects.clients import of_path
from gateway.domain.record import new_request_id
from gateway.errors import BadRequest, GatewayError, MethodNotAllowed
from gateway.runtime.deadlines import Deadlines
from gateway.runtime.write_batcher import WriteBatcher, send_at_once

log = logging.getLogger(__name__)

_OFFERS = frozenset((b"upgrade", b"http2-settings"))
_CHUNKED = (b"transfer-encoding", b"chunked")
_CLOSE = (b"connection", b"close")
_WAITING_BYTES = 16 * 1024
"""Maximum bytes of a stream's pieces that wait in the transport until the other connections have been read."""
_NOWHERE: deque[tuple[bytes, bytes]] = deque(maxlen=0)
"""A place for trailers, which are discarded: they were neither authenticated nor counted."""


class Endpoint(Protocol):
    """An endpoint that is called without ASGI messages."""

    deadlines: Deadlines

    async def answer(self, caller: Caller) -> None: ...


class Application(Protocol):
    """The part of the ASGI application that this protocol uses."""

    def endpoint(self, path: bytes) -> Endpoint | None:
        """The endpoint that answers a POST to `path` without ASGI; None if there is none."""
        ...

    def socket_at(self, path: bytes) -> bool:
        """Whether a WebSocket can be opened at `path`."""
        ...


class InferenceProtocol(BoundedProtocol):
    """One client connection. Requests for inference take the direct path, all others uvicorn's own path."""

    outgoing: ClassVar[WriteBatcher]
    """The write batcher that all connections of one server share."""
    handed_over = False
    """Whether the connection is a WebSocket now, which another protocol serves."""
    _idle_since = 0.0
    _ahead: RequestResponseCycle | None = None
    """The request that is being answered while pipelined requests wait. `cycle` is then the last of the waiting
    requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        send_at_once(transport)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            rest = data[offer.args[0] :]
            if self._opens_socket():
                self._hand_over(rest)
            else:
                self._decline(rest)
        except httptools.HttpParserError as error:
            ours = error.__context__
            if not isinstance(ours, GatewayError):
                ours = BadRequest("What arrived is not HTTP/1.1 as RFC 9112 has it; look at its framing and headers.")
            self.refuse(ours)

    def _opens_socket(self) -> bool:
        """Whether the request asks to open a WebSocket at a path that serves WebSockets."""
        if self.parser.get_method() != b"GET" or self._get_upgrade() != b"websocket":
            return False
        busy = self.cycle is not None and not self.cycle.response_complete
        app: Application = self.app
        return not busy and app.socket_at(self.url.partition(b"?")[0])

    def _hand_over(self, rest: bytes) -> None:
        """Pass the connection, with the bytes `rest` after the handshake, to the WebSocket protocol."""
        try:
            check_head(self.url, self.headers, self.parser.get_http_version())
        except GatewayError as error:
            self.refuse(error)
            return
        from gateway.api.server.web_socket import take_over  # most workers never need it

        self.handed_over = True
        take_over(self, self.url, self.headers, rest)

    def _decline(self, rest: bytes) -> None:
        """Parse a request again without its offer to upgrade the protocol. Java's client, for example, offers HTTP/2
        with each request."""
        parser = self.parser
        if parser.get_method() == b"CONNECT":
            self.refuse(MethodNotAllowed("This is no proxy."))
            return
        lines = [b"%b %b HTTP/%b" % (parser.get_method(), self.url, parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token for token in value.split(b",") if token.strip().lower() not in _OFFERS]
                lines.append(b"connection:" + b",".join(tokens))
            elif name not in _OFFERS:
                lines.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def on_headers_complete(self) -> None:
        parser = self.parser
        if parser.should_upgrade():
            return
        headers, version = self.headers, parser.get_http_version()
        named = dict(headers)
        if (
            len(named) < len(headers)
            or b"host" not in named
            or len(named) > MOST_HEADERS
            or self.unparsed > MAX_HEAD_BYTES
        ):
            check_head(self.url, headers, version)
        self._fields, self.unparsed = _NOWHERE, 0
        if parser.get_method() == b"POST" and version == "1.1":
            path, _, query = self.url.partition(b"?")
            app: Application = self.app
            endpoint = app.endpoint(path)
            if endpoint is not None:
                self._answer(endpoint, path, query)
                return
        url, before = self.url, self.cycle
        check_path(url)
        super(BoundedProtocol, self).on_message_begin()  # uvicorn's own method, which makes a scope
        self.url, self.expect_100_continue = url, _expects_100_continue(headers)
        self.headers.extend(headers)
        super().on_headers_complete()
        if len(self.pipeline) == 1:
            self._ahead = self._ahead or before
        self.cycle.headers = self.headers  # type: ignore[attr-defined]  # Starlette puts another list into the scope

    def _answer(self, endpoint: Endpoint, path: bytes, query: bytes) -> None:
        before = self.cycle
        self.cycle = call = Call(self, endpoint, path.decode("ascii"), query)
        if before is None or before.response_complete:
            self._start_asgi_task(call, self.app)
        else:  # pipelined
            self.flow.pause_reading()
            self._ahead = self._ahead or before
            self.pipeline.appendleft((call, self.app))

    def refuse(self, error: GatewayError) -> None:
        """Answer bytes that are not a request, and close the connection. The connection cannot be used further,
        because the start of the next request is unknown.
        """
        self.outgoing.flush()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._leave()
            if cycle.response_started or self.pipeline:  # otherwise the answer would be inserted into another one
                self.transport.close()
                return
        dialect, request_id = of_path(self.url.partition(b"?")[0].decode("latin-1")), new_request_id()
        body = dialect.error_body(error, request_id)
        headers = [(b"content-type", b"application/json"), *of_error(error), *of_id(request_id)]
        lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
        framing = b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(b"%b%b%b%b" % (STATUS_LINE[dialect.status(error)], lines, framing, body))
        self.transport.close()

    def _leave(self) -> None:
        """Notify all requests in progress that their client has disconnected."""
        for cycle in (self._ahead, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def on_body(self, body: bytes) -> None:
        if (framing := self.framing) is not None:
            self.count_framing(framing, len(body))
        self.unparsed = 0
        call = self.cycle
        if type(call) is not Call:
            super().on_body(body)
        elif not call.response_complete:
            call.came(body)

    def on_message_complete(self) -> None:
        call = self.cycle
        if type(call) is Call:
            if not call.response_complete:
                call.more_body = False
                call.set()
        elif call is not None:  # otherwise there was only an upgrade offer
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        if self._ahead is not None:  # uvicorn notifies only the last of the pipelined requests
            self._leave()
            self._ahead = None
        super().connection_lost(exc)

    def shutdown(self) -> None:
        self.outgoing.flush()
        super().shutdown()

    # -- one timer per connection instead of one per request -------------------------------------------------------

    def _unset_keepalive_if_required(self) -> None:
        """Does nothing: the idle timer is not restarted for each request."""

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._ahead = cycle if self.pipeline else None
            self._start_asgi_task(cycle, app)
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_again(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        busy = self.cycle is not None and not self.cycle.response_complete
        left_s = self.timeout_keep_alive if busy else self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._look_again(left_s)
        else:
            self.transport.close()

    def _look_again(self, after_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(after_s, self.timeout_keep_alive_handler)


class Call(RequestResponseCycle):
    """Implements `Caller` for one request. The protocol also uses this object as uvicorn's request object
    (`RequestResponseCycle`), so it has the attributes that are needed for that.
    """

    _flowing = False
    """Whether pieces of a stream wait for the end of the loop's turn, in which uvloop sends them together."""
    _continued = False
    """Whether 100 Continue has been sent to the client."""

    def __init__(self, protocol: InferenceProtocol, endpoint: Endpoint, path: str, query: bytes) -> None:
        # uvicorn's own __init__ is not called, because it creates an event and a scope that are not used.
        self.method, self.path, self.query, self.headers = "POST", path, query, protocol.headers
        self.transport, self.flow = protocol.transport, protocol.flow
        self.on_response = protocol.on_response_complete
        self.default_headers = protocol.server_state.default_headers
        self.keep_alive = protocol.parser.should_keep_alive()
        self.disconnected = self.response_started = self.response_complete = False
        self.body: bytearray | bytes = b""  # type: ignore[assignment]
        self._most = HIGH_WATER_LIMIT
        self.more_body = True
        self._endpoint, self._loop, self._outgoing = endpoint, protocol.loop, protocol.outgoing
        self._waiting: asyncio.Future[None] | None = None
        self._react: Callable[[], None] | None = None
        self._unsent = b""

    @property
    def message_event(self) -> Call:  # type: ignore[override]
        """This object itself, because it also serves as uvicorn's event object."""
        return self  # an attribute would keep the call in memory until garbage collection

    def set(self) -> None:
        """React as uvicorn's `Event.set` would. The protocol calls this method when a piece of the body has arrived or
        the client has left.
        """
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        if self.disconnected and self._react is not None:
            self._react()

    async def run_asgi(self, app: Any) -> None:
        try:
            await self._endpoint.answer(self)
        except Exception:
            log.exception("a request on %s was not answered", self.path)
        finally:
            self.on_response = _nothing
            if not self.response_complete and not self.disconnected:
                self._hang_up()  # so that no task waits forever

    # -- the request -----------------------------------------------------------------------------------------------

    def came(self, piece: bytes) -> None:
        """Add a piece of the body. The first piece is kept without a copy, because most bodies have only one."""
        if not self.body:
            self.body = piece
        else:
            if type(self.body) is bytes:
                self.body = bytearray(self.body)
            self.body += piece
        if len(self.body) > self._most:
            self.flow.pause_reading()
            self.set()

    async def read(self, limit: int, pace: Pace) -> bytes:
        if self.more_body:
            if self._waits_for_100_continue() and not self.transport.is_closing():
                self._continued = True
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            began = self._loop.time()
            while self.more_body and len(self.body) <= limit:
                due = began + pace.due_s(len(self.body))
                if due <= self._loop.time():
                    self.keep_alive = False
                    raise stalled()
                with contextlib.suppress(TimeoutError), self._endpoint.deadlines.at(due):
                    await self._rest(limit)
        body, self.body = self.body, b""
        if len(body) > limit:
            raise too_large(limit)
        return bytes(body)

    def _waits_for_100_continue(self) -> bool:
        """Whether the client waits for 100 Continue before it sends the body."""
        return not self._continued and _expects_100_continue(self.headers)

    async def _rest(self, limit: int) -> None:
        self._most = limit  # the reader is woken once
        while self.more_body and len(self.body) <= limit:
            if self.disconnected:
                raise ConnectionResetError("the client left before its request was whole")
            self.flow.resume_reading()
            self._waiting = self._loop.create_future()
            await self._waiting

    def listen(self, react: Callable[[], None]) -> None:
        self._react = react
        if self.disconnected:
            react()

    def close(self) -> None:
        self._react = None

    # -- the answer ------------------------------------------------------------------------------------------------

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        head = self._head(status, headers, (b"content-length", b"%d" % len(body)))
        self._outgoing.add(self.transport, head + body, self._loop)
        if pause_s:
            self.flow.pause_reading()
            await asyncio.sleep(pause_s)
        self._complete()
        if self.flow.write_paused:
            await self.flow.drain()

    def begin(self, headers: Headers) -> None:
        self._unsent = self._head(200, headers, _CHUNKED)

    def put(self, piece: bytes) -> bool:
        transport = self.transport
        if not piece or transport.is_closing():
            pass
        elif self._unsent or self._outgoing.pending:
            self._outgoing.add(transport, self._framed(piece), self._loop)
        else:  # in the middle of a stream, nothing must be stored before a piece is sent
            if not self._flowing:
                self._flowing = True
                send_at_once(transport, at_most=_WAITING_BYTES)
            transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return not self.flow.write_paused

    async def drain(self) -> None:
        if self.flow.write_paused:
            await self.flow.drain()

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        if self.flow.write_paused:
            await self.flow.drain()
        if self._flowing and not self.transport.is_closing():  # uvloop raises an error for a closed transport
            send_at_once(self.transport)
        self._outgoing.add(self.transport, self._framed(last) + b"0\r\n\r\n", self._loop)
        self._complete()

    def _framed(self, piece: bytes) -> bytes:
        """The piece in chunked transfer coding. The first piece also contains the head of the answer."""
        head, self._unsent = self._unsent, b""  # sent with the chunk, because two writes cost twice as much as one
        return b"%b%x\r\n%b\r\n" % (head, len(piece), piece) if piece else head

    def _head(self, status: int, headers: Headers, framing: tuple[bytes, bytes]) -> bytes:
        if self.default_headers or (self.more_body and self._waits_for_100_continue()):
            self.keep_alive = False  # the connection will be closed, or it is unknown whether the body still arrives
        lines = [*headers, framing] if self.keep_alive else [*headers, _CLOSE, framing]
        head, breaks = b"\r\n".join(map(b": ".join, lines)), len(lines) - 1
        if head.count(b"\n") != breaks or head.count(b"\r") != breaks:
            raise ValueError("a line break in a header would tear the answer's head apart")
        self.response_started = True
        return b"%b%b\r\n\r\n" % (STATUS_LINE[status], head)

    def _complete(self) -> None:
        self.response_complete = True
        if self.disconnected:
            return
        if not self.keep_alive:
            self._hang_up()
        self.on_response()

    def _hang_up(self) -> None:
        self._outgoing.flush()
        self.transport.close()


def _expects_100_continue(headers: Headers) -> bool:
    return by_name(headers).get(b"expect", b"").lower() == b"100-continue"


def _nothing() -> None:
    """Does nothing. It replaces the callback of a request that has ended."""
