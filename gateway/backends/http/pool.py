"""The HTTP/1.1 client of one backend. Keeps the pool of connections, the queue of waiting callers, and the timeouts."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Coroutine, Sequence
from typing import Any

from aiohappyeyeballs import start_connection

from gateway.backends.http.connection import Connection, Stale
from gateway.backends.http.response import Response
from gateway.backends.http.unreachable import unreachable
from gateway.backends.http.wire import Origin
from gateway.errors import BackendTimeout, BackendUnreachable
from gateway.runtime.write_batcher import WriteBatcher

_CONNECT_S = 10.0
"""Timeout in seconds for opening a connection."""
_SECOND_ADDRESS_S = 0.25
"""Seconds after which a second address of a host is tried while the first attempt to connect continues (RFC 8305)."""
_GOODBYE_S = 1.0
"""Timeout in seconds for the TLS shutdown."""
_SWEEP_S = 0.01
"""Maximum seconds by which timeouts may be late, so that one run of the timer can handle several timeouts."""
_PROBES = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""TCP keepalive settings. With them, a lost peer is detected within 90 seconds, even during a stream."""


class PooledClient:
    """Sends at most `concurrent` requests at a time; further callers wait in a queue. The connection used last is
    reused first."""

    def __init__(
        self,
        origin: Origin,
        *,
        concurrent: int,
        name: str,
        tls: ssl.SSLContext | None,
        idle_timeout_s: float,
        socket_path: str = "",
    ) -> None:
        """`socket_path`: the Unix socket to connect to instead of the origin's host and port."""
        self.name = name
        self.outgoing = WriteBatcher()
        self._origin, self._socket_path = origin, socket_path
        self._concurrent = concurrent
        self._tls = tls
        self._idle_timeout_s = idle_timeout_s
        self._idle: dict[Connection, float] = {}
        """Idle connection → loop time at which it became idle. The connection that has been idle longest comes first.
        """
        self._busy: set[Connection] = set()
        self._taken = 0
        """Number of slots in use. Each connection with a request, and each connection that is being opened, uses one
        slot."""
        self._line: dict[asyncio.Future[Connection | None], float] = {}
        """The queue: future of a waiting caller → loop time until which the caller waits, in order of arrival. The
        future's result is a connection; None means that a slot is free and the caller must open a connection."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The running event loop. It is stored, because looking it up takes a system call."""
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = float("inf")
        self._closed = False
        self._opened = self._requests = self._stale = 0

    def stats(self) -> dict[str, int]:
        """The numbers of connections, waiting callers and requests."""
        return {
            "idle": len(self._idle),
            "busy": len(self._busy),
            "waiting": len(self._line),
            "opened": self._opened,
            "requests": self._requests,
            "stale": self._stale,
        }

    async def request(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        deadline: float,
        first_byte_timeout: float,
    ) -> Response:
        """Send a request and return the response when its head has arrived. The caller must close the response. Raises
        BackendUnreachable, BackendTimeout, BackendGarbage.

        `first_byte_timeout`: seconds for queue, connecting and the body's first byte together. `deadline`: loop time.
        """
        head = self._origin.head(method, path, headers, len(body))
        return await self._exchange(head, body, deadline, first_byte_timeout, math.inf)

    def opening(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The part of the request head that is equal for all POST requests to `path`. Pass it to `post`. Raises
        BackendUnreachable if a header contains invalid characters."""
        return self._origin.opening("POST", path, headers)

    def post(
        self, opening: bytes, body: bytes, *, deadline: float, first_byte_timeout: float, stall_timeout: float
    ) -> Coroutine[Any, Any, Response]:
        """Send a POST request, with the errors and timeouts of `request`. `stall_timeout`: maximum seconds between
        two pieces of the body.

        `opening`: result of the method `opening`, to which complete header lines may be appended.
        """
        head = opening + b"content-length: %d\r\n\r\n" % len(body)
        return self._exchange(head, body, deadline, first_byte_timeout, stall_timeout)

    async def _exchange(
        self, head: bytes, body: bytes, deadline: float, first_byte_timeout: float, stall_timeout: float
    ) -> Response:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        limit = loop.time() + first_byte_timeout
        if limit > deadline:
            limit = deadline
        self._requests += 1
        for fresh in (False, True):
            if fresh or not self._idle:
                connection = await self._acquire(loop, limit)
            else:
                connection, _ = self._idle.popitem()
                self._busy.add(connection)
                self._taken += 1
            if limit < self._wake_at:
                self.watch(limit)
            try:
                response = connection.send(head, body, limit=limit, deadline=deadline, stall_timeout=stall_timeout)
                await response.begun
            except Stale:
                self._stale += 1
            except asyncio.CancelledError:
                await response.aclose()
                raise
            else:
                return response
        raise BackendUnreachable(f"{self.name} keeps closing its connections", backend=self.name)

    async def aclose(self) -> None:
        """Close all connections at once. Requests in progress and waiting callers fail."""
        self._closed = True
        gone = BackendUnreachable(f"the connections to {self.name} were closed", backend=self.name)
        for waiter in self._line:
            if not waiter.done():
                waiter.set_exception(gone)
        self._line.clear()
        for connection in [*self._idle, *self._busy]:
            connection.fail(gone)
            connection.drop()
        if self._timer:
            self._timer.cancel()
        await asyncio.sleep(0)  # transports finish closing in the next iteration of the loop

    # slots

    async def _acquire(self, loop: asyncio.AbstractEventLoop, limit: float) -> Connection:
        """Open a new connection. If the maximum number of connections is in use, wait for a connection that becomes
        free. `limit`: loop time at which the wait ends."""
        if self._closed:
            raise BackendUnreachable(f"the connections to {self.name} were closed", backend=self.name)
        if self._taken >= self._concurrent:
            handed = await self._wait(loop, limit)
            if handed:
                return handed
        else:
            if self._idle and len(self._idle) + self._taken >= self._concurrent:
                next(iter(self._idle)).drop()
            self._taken += 1
        return await self._open(loop, limit)

    async def _wait(self, loop: asyncio.AbstractEventLoop, limit: float) -> Connection | None:
        waiter: asyncio.Future[Connection | None] = loop.create_future()
        self._line[waiter] = limit
        self.watch(limit)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                handed = waiter.result()  # a connection was passed to this caller, but the caller was cancelled
                if handed is None or not handed.gone:
                    self.release(handed)
            raise
        finally:
            self._line.pop(waiter, None)

    async def _open(self, loop: asyncio.AbstractEventLoop, limit: float) -> Connection:
        """Open a connection for a slot that is already reserved. If the connection cannot be opened, release the
        slot."""
        connection = Connection(self, loop)
        connection.limit = limit
        self._busy.add(connection)
        try:
            async with asyncio.timeout_at(min(limit, loop.time() + _CONNECT_S)):
                await self._dial(connection, loop)
            if self._closed:
                raise ConnectionAbortedError("closed while connecting")
        except BaseException as error:
            connection.drop()  # releases the slot
            if isinstance(error, OSError):
                raise unreachable(error, _reason(error), self.name) from error
            raise
        self._opened += 1
        return connection

    async def _dial(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        if self._socket_path:
            await loop.create_unix_connection(lambda: connection, self._socket_path)
            return
        origin = self._origin
        where: dict[str, Any] = {"host": origin.host, "port": origin.port}
        if not origin.literal:
            addresses = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
            where = {"sock": await start_connection(addresses, happy_eyeballs_delay=_SECOND_ADDRESS_S, interleave=1)}
        if self._tls:
            where |= {"ssl": self._tls, "server_hostname": origin.host, "ssl_handshake_timeout": _CONNECT_S}
            where["ssl_shutdown_timeout"] = _GOODBYE_S
        transport, _ = await loop.create_connection(lambda: connection, **where)
        _probe(transport.get_extra_info("socket"))

    # called by connections (http.connection.Owner)

    def release(self, connection: Connection | None) -> None:
        """Free a slot, and give it to the next caller in the queue. If no caller waits, the connection becomes idle.

        `connection`: the connection that became free; None if the connection was lost and the next caller must open
        one.
        """
        while self._line:
            waiter = next(iter(self._line))
            del self._line[waiter]
            if not waiter.done():
                waiter.set_result(connection)
                return
        self._taken -= 1
        if connection is not None:
            self._busy.discard(connection)
            self._idle[connection] = now = connection.loop.time()
            if now + self._idle_timeout_s < self._wake_at:
                self.watch(now + self._idle_timeout_s)

    def lost(self, connection: Connection) -> None:
        if connection in self._idle:
            del self._idle[connection]
            return
        self._busy.discard(connection)
        self.release(None)

    # time

    def watch(self, when: float) -> None:
        """Make `_sweep` run at `when` (loop time) at the latest."""
        if when < self._wake_at and not self._closed:
            if self._timer:
                self._timer.cancel()
            self._wake_at = when
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(when + _SWEEP_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the waits, requests and idle connections whose timeout has passed. Then set the timer for the next
        timeout."""
        now = loop.time()
        self._timer, self._wake_at = None, float("inf")
        for waiter, limit in list(self._line.items()):
            if limit <= now:
                del self._line[waiter]
                if not waiter.done():
                    message = f"{self.name} was too busy: no connection came free in time"
                    waiter.set_exception(BackendTimeout(message, backend=self.name))
        for connection in [busy for busy in self._busy if busy.limit <= now]:
            connection.expire(now)
        for connection in [idle for idle, since in self._idle.items() if since + self._idle_timeout_s <= now]:
            connection.drop()
        limits = [*self._line.values(), *(connection.limit for connection in self._busy)]
        limits.extend(since + self._idle_timeout_s for since in self._idle.values())
        if limits:
            self.watch(min(limits))


def _probe(sock: socket.socket) -> None:
    """Enable TCP keepalive."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES.items():
        if hasattr(socket, option):  # not every operating system has all options
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _reason(error: OSError) -> str:
    """The reason why connecting failed. The text contains no address, because clients see the text."""
    match error:
        case ssl.SSLCertVerificationError():
            return "its certificate is not trusted"
        case ssl.SSLError():
            return "TLS could not be agreed on"
        case socket.gaierror():
            return "its name cannot be resolved"
        case TimeoutError():
            return "the connection was not made in time"
        case ConnectionRefusedError():
            return "the connection was refused"
        case _:
            return "the network refused the connection"
