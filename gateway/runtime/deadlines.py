"""Deadlines for many tasks, with one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Self

LATE_S = 0.05
"""Maximum seconds by which a deadline is late, so that one run of the timer can end several blocks."""


class Deadlines:
    """Creates `Deadline` objects for one event loop."""

    def __init__(self) -> None:
        self.running: set[Deadline] = set()
        self.wake_at = float("inf")
        """Loop time at which the first of the deadlines may pass."""
        self._timer: asyncio.TimerHandle | None = None
        self.at: Callable[[float], Deadline] = partial(Deadline, self)
        """Creates a deadline at a loop time for a `with` block. A longer block is cancelled and raises TimeoutError,
        up to `LATE_S` seconds late."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, whose clock the deadlines use. It is stored, because asyncio makes a system call each time
        that it looks up the loop."""
        return asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self.running)

    def wake(self, when: float) -> None:
        """Check all deadlines at the loop time `when`."""
        if self._timer is not None:
            self._timer.cancel()
        self.wake_at = when
        self._timer = self.loop.call_at(when + LATE_S, self._sweep)

    def _sweep(self) -> None:
        now = self.loop.time()
        self._timer, self.wake_at = None, float("inf")
        for deadline in [each for each in self.running if each.when <= now]:
            deadline.expire()
        if self.running:
            self.wake(min([each.when for each in self.running]))


class Deadline:
    """A context manager with a time limit. Use it only once, in the task that must be cancelled when the time is
    over."""

    __slots__ = ("_before", "_deadlines", "_task", "passed", "when")

    def __init__(self, deadlines: Deadlines, when: float) -> None:
        self._deadlines, self.when, self.passed = deadlines, when, False

    def __enter__(self) -> Self:
        deadlines, when = self._deadlines, self.when
        task = asyncio.current_task(deadlines.loop)
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._before = task.cancelling()
        deadlines.running.add(self)
        if when < deadlines.wake_at:
            deadlines.wake(when)
        return self

    def expire(self) -> None:
        self._deadlines.running.discard(self)
        self.passed = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the block. Raises TimeoutError if this deadline cancelled the task and nothing else cancelled it."""
        self._deadlines.running.discard(self)
        if self.passed:
            self.passed = False
            if self._task.uncancel() <= self._before and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise TimeoutError from error
