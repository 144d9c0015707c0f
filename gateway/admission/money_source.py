"""The interface of a source of money for a hold: shared counters, or the limit of the request itself."""

from __future__ import annotations

from typing import Protocol

from gateway.admission.meter import Meter
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.record import Record
from gateway.errors import BudgetExhausted


class MoneySource(Protocol):
    """Gives units of `meter` (nano-dollars or tokens) to a hold."""

    meter: Meter
    truncates: bool
    bounds: bool

    @property
    def soft(self) -> object:
        """A truthy value if there are soft budgets, which are not enforced."""
        ...

    @property
    def known(self) -> bool: ...
    @property
    def remaining(self) -> int: ...
    @property
    def left(self) -> int: ...

    def price(self, backend: Backend) -> Price | None: ...

    def refuse_unpriced(self, backend: Backend, what: str = "") -> None: ...

    def note_soft(self, record: Record) -> None: ...

    async def look(self, max_age_s: float) -> None: ...

    def try_take(self, units: int, record: Record) -> bool: ...

    async def take(self, units: int, held: int, record: Record, patience_s: float) -> None: ...

    async def stretch(self, units: int, held: int, record: Record) -> BudgetExhausted | None: ...

    def give(self, units: int) -> None: ...

    def settle(self, held: int, cost: int) -> None: ...
