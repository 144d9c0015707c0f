"""The concurrency slots of a backend. A call takes a slot at once, or waits for a slot in a bounded, fair queue."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from gateway.backends.resilience.fair_queue import FairQueue
from gateway.errors import Overloaded, ShareExceeded

_NEWEST = 0.1
"""Weight of the newest sample in the moving average of the time between two released slots."""
_FIRST_GUESS_S = 1.0
"""Seconds that `retry-after` assumes between two released slots, until this time has been measured."""
_LEAST_S, _MOST_S = 0.25, 60.0


class _Waiter:
    __slots__ = ("batch", "granted", "share")
    """A queued caller. `granted` is done when the caller has a slot."""

    def __init__(self, share: str, batch: bool, granted: asyncio.Future[None]) -> None:
        self.share, self.batch, self.granted = share, batch, granted


class ConcurrencyLimiter:
    """Limits the calls of a backend to `concurrent` at a time. A caller waits only if no slot is available."""

    def __init__(
        self, name: str, concurrent: int, queue: int, queue_timeout_s: float, monotonic: Callable[[], float]
    ) -> None:
        """`concurrent`: maximum number of calls. `queue`: maximum number of callers that wait. `queue_timeout_s`:
        maximum seconds for which a caller waits.
        """
        self._name, self._concurrent = name, concurrent
        self._most_waiting, self._timeout_s = queue, queue_timeout_s
        self._monotonic = monotonic
        self._free = concurrent
        self._held: dict[str, int] = {}
        self._queue: FairQueue[_Waiter] = FairQueue()
        self._gap_s: float | None = None
        self._freed_at: float | None = None
        self._counts = {"queued": 0, "timed_out": 0, "refused": 0, "refused_batch": 0, "refused_share": 0}

    def stats(self) -> dict[str, int]:
        """Counters of this limiter, and the number of waiting callers."""
        return {"waiting": len(self._queue), **self._counts}

    @property
    def taken(self) -> int:
        """Number of slots in use."""
        return self._concurrent - self._free

    @property
    def waiting(self) -> int:
        """Number of callers in the queue."""
        return self._queue.length

    def take(self, share: str) -> bool:
        """Take a slot for `share` (a team) if a slot is available. Returns whether a slot was taken."""
        free = self._free
        if free == 0:
            return False
        self._free = free - 1
        held = self._held
        held[share] = held.get(share, 0) + 1
        return True

    async def wait(self, share: str, batch: bool, wait_s: float) -> None:
        """Wait at most `wait_s` seconds for a slot, which the caller then holds. A cancelled caller holds no slot.
        Raises Overloaded, or ShareExceeded if too many callers of `share` (a team) wait."""
        self._drop_one_if_full(share, batch)
        waiter = _Waiter(share, batch, asyncio.get_running_loop().create_future())
        if not self._queue:
            self._freed_at = (
                None  # the time between released slots shows the throughput only while all slots are in use
            )
        self._queue.push(waiter)
        self._counts["queued"] += 1
        try:
            async with asyncio.timeout(min(wait_s, self._timeout_s)):
                await waiter.granted
        except TimeoutError:
            self._withdraw(waiter)
            self._counts["timed_out"] += 1
            raise self._full() from None
        except BaseException:
            self._withdraw(waiter)
            raise

    def release(self, share: str) -> None:
        """Release a slot of `share` (a team). If callers wait, the next waiting caller gets the slot."""
        held = self._held
        left = held[share] - 1
        if left:
            held[share] = left
        else:
            del held[share]
        if not self._queue.length:
            self._free += 1
            return
        self._measure()
        while (waiter := self._queue.pop(self._held)) is not None:
            if not waiter.granted.done():  # if the future is done, the caller was cancelled and will call `_withdraw`
                self._held[waiter.share] = self._held.get(waiter.share, 0) + 1
                waiter.granted.set_result(None)
                return
        self._free += 1

    def _withdraw(self, waiter: _Waiter) -> None:
        """Remove a caller that stopped waiting. If the caller received a slot at the same moment, release the slot."""
        self._queue.discard(waiter)
        granted = waiter.granted
        if granted.done() and not granted.cancelled() and granted.exception() is None:
            self.release(waiter.share)

    def _drop_one_if_full(self, share: str, batch: bool) -> None:
        """If the queue is full, drop one waiting caller so that the new caller can wait. Raises Overloaded if the new
        caller itself must be dropped."""
        queue = self._queue
        if len(queue) < self._most_waiting:
            return
        dropped = queue.to_drop_for(share, batch=batch)
        if dropped is None:
            raise self._refusal(batch, crowds=queue.waiting(share) > 0 and queue.shares() > 1)
        queue.discard(dropped)
        if not dropped.granted.done():
            refusal = self._refusal(dropped.batch, crowds=dropped.batch == batch)
            dropped.granted.set_exception(refusal)

    def _refusal(self, batch: bool, *, crowds: bool) -> Overloaded:
        """The error for a dropped caller. `crowds`: whether the caller's team fills the queue. Then the error asks
        this team to send less.
        """
        if crowds:
            self._counts["refused_share"] += 1
            return ShareExceeded(
                f"{self._name} is busy and your team already has its share of those that wait for it; "
                "send fewer requests at a time",
                retry_after_s=self._retry_after_s(),
            )
        self._counts["refused_batch" if batch else "refused"] += 1
        return self._full()

    def _full(self) -> Overloaded:
        return Overloaded(
            f"{self._name} already has {self._concurrent} calls in progress; try again shortly, "
            "or raise its `concurrent`",
            retry_after_s=self._retry_after_s(),
        )

    def _retry_after_s(self) -> float:
        """Estimated seconds until all present callers are served. Randomised, so that clients do not retry together."""
        expected = _FIRST_GUESS_S if self._gap_s is None else self._gap_s * (len(self._queue) + 1)
        return min(max(expected, _LEAST_S), _MOST_S) * random.uniform(0.8, 1.4)  # noqa: S311 - scatter, no secret

    def _measure(self) -> None:
        now = self._monotonic()
        if self._freed_at is not None:
            gap_s = now - self._freed_at
            before = gap_s if self._gap_s is None else self._gap_s
            self._gap_s = before + (gap_s - before) * _NEWEST
        self._freed_at = now
