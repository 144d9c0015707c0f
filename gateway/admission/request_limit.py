"""The limit of a single request: `max_usd_per_request` of its policy."""

from __future__ import annotations

from decimal import Decimal

from gateway.admission import messages
from gateway.admission.meter import Dollars, Meter
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.protocols import PriceList
from gateway.domain.record import Record
from gateway.domain.units import NANO_PER_USD
from gateway.errors import BudgetExhausted


class RequestLimit:
    """Implements `MoneySource` for the limit of one request. It needs no shared counter and never waits."""

    known, bounds, truncates = True, True, False
    soft = ()

    def __init__(self, limit_usd: Decimal, name: str, place: str, prices: PriceList) -> None:
        """`name`: the setting or header with the limit. `place`: the file or request where it is. Both are for
        messages.
        """
        self.meter: Meter = Dollars(prices)
        self._limit, self._name, self._place = int(limit_usd * NANO_PER_USD), name, place
        self._taken = 0

    @property
    def remaining(self) -> int:
        return self._limit - self._taken

    left = remaining

    def price(self, backend: Backend) -> Price | None:
        return self.meter.price(backend)

    def refuse_unpriced(self, backend: Backend, what: str = "") -> None:
        """Raise BudgetExhausted, because the limit cannot be enforced without a price. The operator's own machines
        count as free. `what`: the unit without a price; empty if the model has no price.
        """
        if what or not backend.own:
            thing = f"{what} on {backend.name}" if what else f"{backend.model} on {backend.name}"
            raise BudgetExhausted(
                f"The price of {thing} is unknown, so {self._rule} cannot be kept. Add backends.price in gateway.yaml, "
                "or name another model."
            )

    @property
    def _rule(self) -> str:
        return f"{self._name}: {messages.usd(self._limit)} {self._place}"

    def note_soft(self, record: Record) -> None:
        """Does nothing, because this limit is always enforced."""

    async def look(self, max_age_s: float) -> None:
        """Does nothing, because there is no counter to read."""

    def try_take(self, units: int, record: Record) -> bool:
        if units > self.remaining:
            return False
        self._taken += units
        return True

    async def take(self, units: int, held: int, record: Record, patience_s: float) -> None:
        """Take `units` from the limit, for a request that already holds `held` units. Raises BudgetExhausted if the
        limit is too low for the total.
        """
        if not self.try_take(units, record):
            raise self._too_dear(units)

    async def stretch(self, units: int, held: int, record: Record) -> BudgetExhausted | None:
        return None if self.try_take(units, record) else self._too_dear(units)

    def _too_dear(self, units: int) -> BudgetExhausted:
        return BudgetExhausted(
            f"The request may cost {messages.usd(self._taken + units)} USD, more than {self._rule} allows. Ask for "
            "fewer output tokens (max_tokens), send less context, name a cheaper model, or have the limit raised."
        )

    def give(self, units: int) -> None:
        self._taken -= units

    def settle(self, held: int, cost: int) -> None:
        self._taken += cost - held
