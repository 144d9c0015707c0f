"""Order of waiting requests, and which one to drop when too many wait: interactive first, fair between tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

BATCH_TURN = 8
"""While both classes wait, every so many turns one is batch's: it may be slow, but it never starves."""


class Waiting(Protocol):
    """What the queue has to know of one that waits."""

    @property
    def share(self) -> str:
        """Whose fair share it counts against."""
        ...

    @property
    def batch(self) -> bool: ...


Waiter = TypeVar("Waiter", bound=Waiting)


class FairQueue(Generic[Waiter]):
    """First come, first served within a share; between shares the one with the fewest places is next. No I/O."""

    def __init__(self) -> None:
        self._interactive: dict[str, dict[Waiter, None]] = {}
        self._batch: dict[str, dict[Waiter, None]] = {}
        self._turns = 0
        self.length = 0
        """As `len` has it, for who asks at every request."""

    def __len__(self) -> int:
        return self.length

    def shares(self) -> int:
        """How many shares wait."""
        return len(self._interactive.keys() | self._batch.keys())

    def waiting(self, share: str) -> int:
        return len(self._interactive.get(share, ())) + len(self._batch.get(share, ()))

    def push(self, waiter: Waiter) -> None:
        self._class(waiter).setdefault(waiter.share, {})[waiter] = None
        self.length += 1

    def discard(self, waiter: Waiter) -> None:
        """Forget one that waits no longer; nothing happens when it is not here."""
        shares = self._class(waiter)
        line = shares.get(waiter.share)
        if line is not None and waiter in line:
            self._remove(shares, line, waiter)

    def pop(self, held: Mapping[str, int]) -> Waiter | None:
        """The next, given how many places each share holds now; None when nobody waits."""
        shares = self._next_class()
        if not shares:
            return None
        share = min(shares, key=lambda name: held.get(name, 0))  # of equals the one whose turn was longest ago
        line = shares[share]
        waiter = next(iter(line))
        self._remove(shares, line, waiter)
        if line:  # its next turn comes after everybody else's
            del shares[share]
            shares[share] = line
        return waiter

    def crowded_out_by(self, share: str, *, batch: bool) -> Waiter | None:
        """Who has to go so that one more of `share` may wait; None when it is the newcomer itself.

        Batch gives way to interactive; else the newest of the longest line, unless the newcomer's would be as long.
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
