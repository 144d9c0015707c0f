"""Deadlines of many tasks. Each deadline is rounded to a moment. All deadlines of one moment share a timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Self

FINE_S = 0.05
COARSE_S = 1.0
COARSE_FROM_S = 60.0
"""Deadlines at least this many seconds away are rounded to `COARSE_S` and the others to `FINE_S`."""


class Deadlines:
    """Creates `Deadline`s. All belong to one event loop."""

    def __init__(self) -> None:
        self._due: dict[float, set[Deadline]] = {}
        self.at: Callable[[float], Deadline] = partial(Deadline, self)
        """Creates a deadline at a loop time for a `with` block. A longer block is cancelled and raises TimeoutError.
        This happens up to `FINE_S` seconds late, or `COARSE_S` if the time is far away."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in whose time deadlines are given. It is stored, because asyncio makes a system call for each
        look-up."""
        return asyncio.get_running_loop()

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def bucket(self, when: float) -> set[Deadline]:
        """The set of deadlines that end at the moment to which `when` is rounded up."""
        step = COARSE_S if when - self.loop.time() >= COARSE_FROM_S else FINE_S
        due = (when // step + 1.0) * step
        if (found := self._due.get(due)) is None:
            found = self._due[due] = set()
            self.loop.call_at(due, self._expire, due)
        return found

    def _expire(self, due: float) -> None:
        for deadline in self._due.pop(due):
            deadline.expire()


class Deadline:
    """A context manager with a time limit. Use it once, in the task that it may cancel."""

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
        """Leave the block. Raises TimeoutError if this deadline cancelled the task and nothing else cancelled it."""
        self._bucket.discard(self)
        if self.passed and self._task is not None:
            self.passed = False
            if self._task.uncancel() <= self._before and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise TimeoutError from error
