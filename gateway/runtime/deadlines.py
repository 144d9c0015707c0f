"""Deadlines for many tasks. The time of each deadline is rounded up, and all deadlines with the same rounded time share
one timer."""

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
    """Creates `Deadline` objects for one event loop."""

    def __init__(self) -> None:
        self.due: dict[float, set[Deadline]] = {}
        """Moment → the deadlines that end at this moment."""
        self.at: Callable[[float], Deadline] = partial(Deadline, self)
        """Creates a deadline at a loop time for a `with` block. A longer block is cancelled and raises TimeoutError.
        This happens up to `FINE_S` seconds late, or `COARSE_S` if the time is far away."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, whose clock the deadlines use. It is stored, because asyncio makes a system call each time
        that it looks up the loop."""
        return asyncio.get_running_loop()

    def __len__(self) -> int:
        return sum(map(len, self.due.values()))

    def bucket(self, due: float) -> set[Deadline]:
        """Make the set for the deadlines that end at the moment `due`, and the timer that ends them."""
        self.loop.call_at(due, self._expire, due)
        self.due[due] = found = set[Deadline]()
        return found

    def _expire(self, due: float) -> None:
        for deadline in self.due.pop(due):
            deadline.expire()


class Deadline:
    """A context manager with a time limit. Use it only once, in the task that must be cancelled when the time is
    over."""

    __slots__ = ("_before", "_bucket", "_deadlines", "_task", "_when", "passed")

    def __init__(self, deadlines: Deadlines, when: float) -> None:
        self._deadlines, self._when, self.passed = deadlines, when, False

    def __enter__(self) -> Self:
        deadlines, when = self._deadlines, self._when
        loop = deadlines.loop
        task = asyncio.current_task(loop)
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._before = task.cancelling()
        step = COARSE_S if when - loop.time() >= COARSE_FROM_S else FINE_S
        due = (when // step + 1.0) * step  # rounded up
        bucket = deadlines.due.get(due)
        if bucket is None:
            bucket = deadlines.bucket(due)
        self._bucket = bucket
        bucket.add(self)
        return self

    def expire(self) -> None:
        self.passed = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the block. Raises TimeoutError if this deadline cancelled the task and nothing else cancelled it."""
        self._bucket.discard(self)
        if self.passed:
            self.passed = False
            if self._task.uncancel() <= self._before and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise TimeoutError from error
