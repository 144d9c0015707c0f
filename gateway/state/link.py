"""One multiplexed connection that speaks the Redis protocol.

Every caller writes at once and replies come back in order, so there is no pool to run dry, a caller that is cancelled
leaves the connection whole, and commands issued in the same instant are pipelined by themselves. (Measured against
redis-py's asyncio pool under uvloop: a fifth of the CPU per GET, and no 0.4 s of import.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, cast

import hiredis

from gateway.errors import StateUnavailable
from gateway.state.address import Address

Command = Sequence[str | bytes | int | float]

GRACE_S = 0.02
"""After a stall of our own loop replies may lie unread in the socket: look once more before giving the server up."""
_WRITE_BUFFER_BYTES = 64 * 2**20


class Door(Protocol):
    """What State sends through: one server's link, or a cluster's."""

    @property
    def alive(self) -> bool: ...

    def exchange(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """One reply per command, errors of the server among them as exceptions. Raises StateUnavailable."""
        ...

    async def aclose(self) -> None: ...


class _Exchange:
    __slots__ = ("deadline", "future", "left", "replies")

    def __init__(self, future: asyncio.Future[list[Any]], left: int, deadline: float) -> None:
        self.future = future
        self.left = left
        self.deadline = deadline
        self.replies: list[Any] = []


def _pack(command: Command) -> bytes:
    words: Any = tuple(command)  # the stub would allow one word only
    packed: bytes = hiredis.pack_command(words)
    return packed


class Link(asyncio.Protocol):
    """A late reply ends the connection: what follows it would be late too, and a reply must never meet a stranger."""

    def __init__(self, name: str, on_lost: Callable[[str], None] | None = None) -> None:
        self._name = name
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=Ellipsis)
        self._waiting: deque[_Exchange] = deque()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._full = False
        self._lost = ""

    @property
    def alive(self) -> bool:
        return not self._lost

    def exchange(self, commands: Sequence[Command], timeout_s: float) -> asyncio.Future[list[Any]]:
        if self._lost or self._full or self._transport is None:
            raise StateUnavailable(self._lost or f"{self._name}: too much is waiting to be sent")
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        deadline = self._loop.time() + timeout_s
        self._waiting.append(_Exchange(future, len(commands), deadline))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)
        self._transport.write(b"".join(map(_pack, commands)))
        return future

    async def aclose(self) -> None:
        self._on_lost = None
        self._end(f"{self._name}: closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not Ellipsis:
                self._answered(reply)
        except (hiredis.ProtocolError, IndexError):  # not Redis, or more replies than questions
            self._end(f"{self._name}: does not speak the Redis protocol")

    def _answered(self, reply: Any) -> None:
        first = self._waiting[0]
        first.replies.append(reply)
        first.left -= 1
        if not first.left:
            self._waiting.popleft()
            if not first.future.done():  # its caller may have been cancelled
                first.future.set_result(first.replies)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"{self._name}: connection lost ({exc or 'closed by the server'})")

    def _expire(self, again: bool = False) -> None:
        self._timer = None
        if not self._waiting or self._lost:
            return
        late = self._loop.time() - self._waiting[0].deadline
        if late < 0:
            self._timer = self._loop.call_at(self._waiting[0].deadline, self._expire)
        elif not again:
            self._timer = self._loop.call_later(GRACE_S, self._expire, True)
        else:
            self._end(f"{self._name}: no reply in time")

    def _end(self, reason: str) -> None:
        """Everyone who waits is told, once."""
        if self._lost:
            return
        self._lost = reason
        if self._timer:
            self._timer.cancel()
        if self._transport:
            self._transport.abort()
        while self._waiting:
            future = self._waiting.popleft().future
            if not future.done():
                future.set_exception(StateUnavailable(reason))
                future.exception()  # its caller may have gone: an answer nobody reads is no warning
        if self._on_lost:
            self._on_lost(reason)


async def dial(address: Address, timeout_s: float, on_lost: Callable[[str], None] | None = None) -> Link:
    """A logged-in link to `address` (unix or tcp). Raises StateUnavailable."""
    loop = asyncio.get_running_loop()
    name = str(address)
    link = Link(name, on_lost)
    try:
        async with asyncio.timeout(timeout_s):
            if address.kind == "unix":
                await loop.create_unix_connection(lambda: link, address.path)
            else:
                host, port = address.hosts[0]
                await loop.create_connection(lambda: link, host, port, ssl=address.tls)
            if login := address.login():
                for reply in await link.exchange(login, timeout_s):
                    if isinstance(reply, Exception):
                        raise StateUnavailable(f"{name}: {reply}")
    except (OSError, TimeoutError, StateUnavailable) as error:
        await link.aclose()
        raise StateUnavailable(f"{name}: {str(error) or 'no connection in time'}") from error
    except BaseException:
        await link.aclose()
        raise
    return link
