"""A connection with a deadline on each command: lent to one caller, or shared.

redis-py's client would lend a connection to one command at a time; here everyone's commands go out as they come and
replies are handed out in their order. That costs half the CPU of a GET or less, needs no second connection, and a
caller that is cancelled leaves the connection whole.
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
"""One connection is shared by all callers; callers that block have their own."""
GRACE_S = 0.02
"""After a stall of our own loop replies may lie unread in the socket: look once more before giving the server up."""
UNSENT_BYTES = 64 * 2**20
"""More than this is not kept for a server that does not read."""


LATE = "no reply in time"


class Wire(Protocol):
    """Bytes out, replies in. Raises StateUnavailable when it broke."""

    async def write(self, packed: bytes) -> None: ...

    async def read(self) -> Any:
        """The next reply, or the StateUnavailable that a refusal is. Interrupted, it loses none."""
        ...

    async def aclose(self) -> None: ...


def pack(commands: Sequence[Command]) -> bytes:
    """As they go over the wire. Raises TypeError for a word that is neither text nor number."""
    words: list[Any] = [tuple(command) for command in commands]  # the stub would allow one word only
    return b"".join(map(pack_command, words))


class Line:
    """Implements Door for one caller at a time. An exchange that ends midway ends the connection too, so that no other
    caller gets its late reply."""

    def __init__(self, name: str, wire: Wire) -> None:
        self.name, self._wire = name, wire
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
            await self._wire.write(packed)
        except StateUnavailable as error:
            raise StateUnavailable(f"{self.name}: {error}") from error

    async def read(self) -> Any:
        """As Wire's."""
        try:
            return await self._wire.read()
        except StateUnavailable as error:
            raise StateUnavailable(f"{self.name}: {error}") from error

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            await self._wire.aclose()


class _Call:
    __slots__ = ("count", "deadline", "future", "replies")

    def __init__(self, count: int, deadline: float, future: asyncio.Future[list[Any]]) -> None:
        self.count, self.deadline, self.future = count, deadline, future
        self.replies: list[Any] = []


class Shared:
    """Implements Door for all callers. A late reply ends the connection, since the following replies would be late
    too."""

    def __init__(self, line: Line, on_lost: Lost) -> None:
        self._line = line
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
            raise StateUnavailable(self._lost or f"{self._line.name}: too much is waiting to be sent")
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
        self._end(f"{self._line.name}: closed")
        await self._tasks.aclose()
        await self._line.aclose()

    async def _write(self) -> None:
        """Callers of the same instant share one write."""
        while True:
            await self._called.wait()
            self._called.clear()
            packed = b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_bytes = 0
            await self._line.write(packed)

    async def _read(self) -> None:
        """Reads also while no caller waits, so that the loss of the server is noticed at once."""
        while True:
            reply = await self._line.read()
            if not self._calls:
                raise StateUnavailable(f"{self._line.name}: answers what nobody asked")
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
            self._end(f"{self._line.name}: {LATE}")

    def _end(self, why: str) -> None:
        """Fail all waiting callers, once."""
        if self._lost:
            return
        self._lost = why
        if self._timer:
            self._timer.cancel()
        while self._calls:
            future = self._calls.popleft().future
            if not future.done():
                future.set_exception(StateUnavailable(why))
                future.exception()  # its caller may have gone: an answer nobody reads is no warning
        if self._on_lost:
            self._on_lost(why)
