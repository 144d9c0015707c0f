"""Books and a hold for tests of whoever calls backends: strict about what may happen once, and in which order."""

from __future__ import annotations

from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt, Outcome, Record
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached
from gateway.errors import BudgetExhausted, LedgerUnavailable


class StrictBooks:
    """Implements Books. An attempt opened or closed twice, or closed before it was opened, fails the test."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: dict[str, str] = {}
        """Attempt's id → outcome."""
        self.full = False
        """Is the disk full?"""

    def open(self, attempt: Attempt, record: Record) -> None:
        if self.full:
            raise LedgerUnavailable("The disk is full.")
        assert attempt.id not in self.opened, "opened twice"
        assert attempt in record.attempts
        self.opened.append(attempt.id)

    def close(self, attempt: Attempt, record: Record) -> None:
        assert attempt.id in self.opened, "closed without being open"
        assert attempt.id not in self.closed, "closed twice"
        assert attempt.outcome != "open"
        self.closed[attempt.id] = attempt.outcome
        if self.full:
            raise LedgerUnavailable("The disk is full.")

    def cached(self, record: Record, usage: Usage, saved_pico: int | None, outcome: Outcome = "ok") -> None:
        raise AssertionError("whoever calls backends knows no cache")

    @property
    def still_open(self) -> list[str]:
        return [name for name in self.opened if name not in self.closed]


class LooseHold:
    """Implements Hold: everything is affordable except the backends in `too_dear`."""

    def __init__(self, *too_dear: str) -> None:
        self.too_dear = too_dear
        self.extended: list[tuple[str, int]] = []
        self.covers = float("inf")
        self.output_limit: int | None = None
        self.followed: Attempt | None = None
        self.spent: BudgetExhausted | None = None
        self.left: int | None = None

    def left_nano(self) -> int | None:
        return self.left

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        if backend.name in self.too_dear:
            raise BudgetExhausted(f"The budget does not allow {backend.name}.")
        self.extended.append((backend.name, input_tokens))

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Nothing runs out, unless it is `spent`."""
        if self.spent is not None:
            raise self.spent

    def follow(self, attempt: Attempt) -> None:
        self.followed = attempt
