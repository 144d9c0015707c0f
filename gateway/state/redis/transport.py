"""Sends commands over a connection, with a deadline for each call. A connection belongs to one caller, or is shared
by all callers.

redis-py's client uses a connection for only one command at a time. `SharedTransport` sends the commands of all
callers as they arrive, and assigns the replies by their order. This takes at most half the CPU time per GET and
needs only one connection. The cancellation of one caller does not break the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from hiredis import pack_command

from gateway.errors import StateUnavailable
from gateway.runtime.tasks import Tasks
from gateway.state.redis.commands import Command, Lost

CONNECTIONS = 16
"""Maximum number of connections per worker. One of them is shared by all callers. The others belong to callers with
commands that block."""
GRACE_S = 0.02
"""Seconds that are added to each deadline. If the event loop of this process was blocked, replies may have arrived that
were not read yet."""
UNSENT_BYTES = 64 * 2**20
"""Maximum bytes that wait to be sent to a server that does not read. If more bytes wait, commands fail at once."""
LATE = "no reply in time"


class Channel(Protocol):
    """A connection that sends bytes and receives replies. Raises StateUnavailable if it is broken."""

    async def write(self, packed: bytes) -> None: ...

    async def read(self) -> Any:
        """Return the next reply. An error reply of the server is returned as a StateUnavailable object. If the call is
        cancelled, no reply is lost."""
        ...

    async def aclose(self) -> None: ...


def pack(commands: Sequence[Command]) -> bytes:
    """Encode commands in the Redis protocol. Raises TypeError for a word that is neither text nor a number."""
    words: list[Any] = [tuple(command) for command in commands]  # the type stub allows one word only
    return b"".join(map(pack_command, words))


class OwnTransport:
    """Implements `Transport` for one caller at a time. If an exchange is interrupted, the connection is closed, so
    that a late reply is never taken for another one.
    """

    def __init__(self, name: str, channel: Channel) -> None:
        self.name, self._channel = name, channel
        self._open = True

    async def exchange(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        try:
            async with asyncio.timeout(timeout_s):
                await self.write(pack(commands))
                return [await self.read() for _ in commands]
        except TimeoutError as error:
            await self.aclose()
            raise StateUnavailable(f"{self.name}: {LATE}") from error
        except BaseException:
            await self.aclose()
            raise

    async def write(self, packed: bytes) -> None:
        if not self._open:
            raise StateUnavailable(f"{self.name}: closed")
        try:
            await self._channel.write(packed)
        except StateUnavailable as error:
            raise StateUnavailable(f"{self.name}: {error}") from error

    async def read(self) -> Any:
        """Return the next reply. An error reply of the server is returned as a StateUnavailable object."""
        try:
            return await self._channel.read()
        except StateUnavailable as error:
            raise StateUnavailable(f"{self.name}: {error}") from error

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            await self._channel.aclose()


class _Call:
    __slots__ = ("count", "deadline", "future", "replies")

    def __init__(self, count: int, deadline: float, future: asyncio.Future[list[Any]]) -> None:
        self.count, self.deadline, self.future = count, deadline, future
        self.replies: list[Any] = []


class SharedTransport:
    """Implements `Transport` for all callers together. If a reply is late, the connection is closed."""

    def __init__(self, transport: OwnTransport, on_lost: Lost) -> None:
        self._transport = transport
        self._on_lost: Lost | None = on_lost
        self._lost = ""
        self._loop = asyncio.get_running_loop()
        self._calls: deque[_Call] = deque()
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._called = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._tasks.spawn(self._until_lost(self._write()), "state writer")
        self._tasks.spawn(self._until_lost(self._read()), "state reader")

    def exchange(self, commands: Sequence[Command], timeout_s: float) -> asyncio.Future[list[Any]]:
        packed = pack(commands)
        if self._lost or self._unsent_bytes > UNSENT_BYTES:
            raise StateUnavailable(self._lost or f"{self._transport.name}: too much is waiting to be sent")
        call = _Call(len(commands), self._loop.time() + timeout_s, self._loop.create_future())
        self._calls.append(call)
        self._unsent.append(packed)
        self._unsent_bytes += len(packed)
        self._called.set()
        if self._timer is None:
            self._timer = self._loop.call_at(call.deadline, self._expire)
        return call.future

    async def aclose(self) -> None:
        self._on_lost = None
        self._end(f"{self._transport.name}: closed")
        await self._tasks.aclose()
        await self._transport.aclose()

    async def _write(self) -> None:
        """Send the queued commands with one write."""
        while True:
            await self._called.wait()
            self._called.clear()
            packed = b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_bytes = 0
            await self._transport.write(packed)

    async def _read(self) -> None:
        """Read replies and assign them to callers. Reading continues while no caller waits, so that a lost server
        is noticed at once.
        """
        while True:
            reply = await self._transport.read()
            if not self._calls:
                raise StateUnavailable(f"{self._transport.name}: sent a reply without a command")
            call = self._calls[0]
            call.replies.append(reply)
            if len(call.replies) == call.count:
                self._calls.popleft()
                if not call.future.done():  # its caller may have been cancelled
                    call.future.set_result(call.replies)

    async def _until_lost(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except StateUnavailable as error:
            self._end(str(error))

    def _expire(self, again: bool = False) -> None:
        self._timer = None
        if not self._calls or self._lost:
            return
        deadline = self._calls[0].deadline
        if self._loop.time() < deadline:
            self._timer = self._loop.call_at(deadline, self._expire)
        elif not again:
            self._timer = self._loop.call_later(GRACE_S, self._expire, True)
        else:
            self._end(f"{self._transport.name}: {LATE}")

    def _end(self, why: str) -> None:
        """End all waiting calls with an error. A second call does nothing."""
        if self._lost:
            return
        self._lost = why
        if self._timer:
            self._timer.cancel()
        while self._calls:
            future = self._calls.popleft().future
            if not future.done():
                future.set_exception(StateUnavailable(why))
                future.exception()  # its caller may be gone: asyncio must not warn of an unread exception
        if self._on_lost:
            self._on_lost(why)
