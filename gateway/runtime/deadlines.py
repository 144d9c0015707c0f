"""Deadlines of many tasks. One timer serves all deadlines that are rounded to the same moment."""

from __future__ import annotations

import asyncio
from functools import cached_property
from types import TracebackType
from typing import Any, Self

FINE_S = 0.05
COARSE_S = 1.0
COARSE_FROM_S = 60.0
"""Minimum distance in seconds of deadlines that are rounded more coarsely."""


class Deadlines:
    """Creates `Deadline`s. Belongs to one event loop."""

    def __init__(self) -> None:
        self._due: dict[float, set[Deadline]] = {}

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop whose time counts. It is stored, because asyncio makes a system call for each look-up."""
        return asyncio.get_running_loop()

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def at(self, when: float) -> Deadline:
        """A deadline that ends its `with` block at `when` (loop time), or up to `FINE_S` seconds later (`COARSE_S` if
        `when` is far away). As with asyncio.timeout, the current task is cancelled and the block raises TimeoutError.
        """
        return Deadline(self, when)

    def bucket(self, when: float) -> set[Deadline]:
        """All deadlines of the moment to which `when` is rounded up."""
        loop = self.loop
        step = COARSE_S if when - loop.time() >= COARSE_FROM_S else FINE_S
        due = (when // step + 1.0) * step
        found = self._due.get(due)
        if found is None:
            found = self._due[due] = set()
            loop.call_at(due, self._expire, due)
        return found

    def _expire(self, due: float) -> None:
        for deadline in self._due.pop(due):
            deadline.expire()


class Deadline:
    """A context manager for one use, by the task that it will cancel."""

    __slots__ = ("_before", "_bucket", "_deadlines", "_task", "_when", "passed")

    def __init__(self, deadlines: Deadlines, when: float) -> None:
        self._deadlines, self._when = deadlines, when
        self._task: asyncio.Task[Any] | None = None
        self.passed = False

    def __enter__(self) -> Self:
        deadlines = self._deadlines
        self._task = task = asyncio.current_task(deadlines.loop)
        assert task is not None
        self._before = task.cancelling()
        self._bucket = bucket = deadlines.bucket(self._when)
        bucket.add(self)
        return self

    def expire(self) -> None:
        self.passed = True
        assert self._task is not None
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise TimeoutError if this deadline ended the block and the task was not cancelled from outside."""
        self._bucket.discard(self)
        if self.passed and self._task is not None:
            self.passed = False
            if self._task.uncancel() <= self._before and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise TimeoutError from error
