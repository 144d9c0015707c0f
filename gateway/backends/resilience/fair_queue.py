"""Orders waiting requests, and selects the request to drop if too many wait. Interactive requests come before batch
requests. The order is fair between shares (teams)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

BATCH_TURN = 8
"""While both interactive and batch requests wait, one of `BATCH_TURN` turns serves a batch request, so that batch
requests are never blocked."""


class Waiting(Protocol):
    """The interface of a request that waits in the queue."""

    @property
    def share(self) -> str:
        """Name of the share (team) that the request counts against."""
        ...

    @property
    def batch(self) -> bool: ...


Waiter = TypeVar("Waiter", bound=Waiting)


class FairQueue(Generic[Waiter]):
    """A queue of requests. The team with the fewest slots is served next. Within a team, the oldest request is served
    first. No I/O."""

    def __init__(self) -> None:
        self._interactive: dict[str, dict[Waiter, None]] = {}
        self._batch: dict[str, dict[Waiter, None]] = {}
        self._turns = 0
        self.length = 0
        """The number of waiting requests, equal to `len()`. A field is faster than `len()`, and each request reads it.
        """

    def __len__(self) -> int:
        return self.length

    def shares(self) -> int:
        """The number of teams (shares) that have requests in the queue."""
        return len(self._interactive.keys() | self._batch.keys())

    def waiting(self, share: str) -> int:
        """The number of waiting requests of `share`."""
        return len(self._interactive.get(share, ())) + len(self._batch.get(share, ()))

    def push(self, waiter: Waiter) -> None:
        """Add a request at the end of its share's line."""
        self._class(waiter).setdefault(waiter.share, {})[waiter] = None
        self.length += 1

    def discard(self, waiter: Waiter) -> None:
        """Remove a request that no longer waits. Does nothing if the request is not in the queue."""
        shares = self._class(waiter)
        line = shares.get(waiter.share)
        if line is not None and waiter in line:
            self._remove(shares, line, waiter)

    def pop(self, held: Mapping[str, int]) -> Waiter | None:
        """Remove and return the request to serve next; None if the queue is empty. `held`: share → number of slots that
        the share holds now."""
        shares = self._next_class()
        if not shares:
            return None
        share = min(shares, key=lambda name: held.get(name, 0))  # among equal shares: the one served longest ago
        line = shares[share]
        waiter = next(iter(line))
        self._remove(shares, line, waiter)
        if line:  # move the share to the end of the order
            del shares[share]
            shares[share] = line
        return waiter

    def to_drop_for(self, share: str, *, batch: bool) -> Waiter | None:
        """Select the waiting request to drop, so that a new request of `share` (a team) can wait. None: drop the new
        request itself. `batch`: whether the new request is a batch request.

        - An interactive request displaces a batch request. If no batch request waits, it displaces an interactive
          one.
        - A batch request displaces only batch requests.
        - Of the requests that may be displaced, the team with the most loses its newest one.
        - If both requests are batch requests, or both are interactive, the numbers of waiting requests are compared. A
          team loses a request only if it has more than `share` has together with the new request.
        """
        if not batch and self._batch:
            shares, shorter = self._batch, 0
        else:
            shares, shorter = self._batch if batch else self._interactive, self.waiting(share) + 1
        longest = max(shares.values(), key=len, default={})
        return next(reversed(longest)) if len(longest) > shorter else None

    def _class(self, waiter: Waiter) -> dict[str, dict[Waiter, None]]:
        return self._batch if waiter.batch else self._interactive

    def _next_class(self) -> dict[str, dict[Waiter, None]]:
        if not (self._interactive and self._batch):
            return self._interactive or self._batch
        self._turns += 1
        return self._interactive if self._turns % BATCH_TURN else self._batch

    def _remove(self, shares: dict[str, dict[Waiter, None]], line: dict[Waiter, None], waiter: Waiter) -> None:
        del line[waiter]
        self.length -= 1
        if not line:
            del shares[waiter.share]
