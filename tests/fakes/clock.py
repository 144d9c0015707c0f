"""A clock that stands still until a test moves it."""

from __future__ import annotations


class StoppedClock:
    """Implements Clock."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds
