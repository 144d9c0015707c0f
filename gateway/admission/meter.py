"""The unit in which a budget counts: US dollars or tokens. Tokens of free backends do not count."""

from __future__ import annotations

from typing import Protocol

from gateway.domain.backend import Backend
from gateway.domain.money.budget import Budget
from gateway.domain.money.price import Price
from gateway.domain.protocols import PriceList, SpentReader
from gateway.domain.record import Attempt, Record
from gateway.domain.units import NANO_PER_USD, PICO_PER_NANO, pico_to_nano_up

_TOKEN = Price(PICO_PER_NANO, PICO_PER_NANO)
"""A price with which each token costs one unit, whatever the token's class is."""
_NOTHING = Price(0, 0)


class Meter(Protocol):
    """Converts cost and usage to integer units: nano-dollars or tokens."""

    name: str

    def price(self, backend: Backend) -> Price | None:
        """The price of `backend` in thousandths of a unit per token. None if the price is unknown; then no money
        can be held.
        """
        ...

    def limit(self, budget: Budget) -> int | None:
        """The limit of `budget` in this unit; None if the budget counts in another unit."""
        ...

    def of_attempt(self, attempt: Attempt) -> int | None:
        """Number of units that an attempt has used; None while unknown."""
        ...

    def of_request(self, cost_pico: int, record: Record) -> int:
        """Number of units that a request has used. `cost_pico`: its cost in pico-dollars."""
        ...

    def of_ledger(self, spent: SpentReader) -> int: ...


class Dollars:
    """Implements `Meter` for budgets in US dollars: costs in nano-dollars, rounded up."""

    name = "usd"

    def __init__(self, prices: PriceList) -> None:
        self.price = prices.price

    def limit(self, budget: Budget) -> int | None:
        return None if budget.limit_usd is None else int(budget.limit_usd * NANO_PER_USD)

    def of_attempt(self, attempt: Attempt) -> int | None:
        return None if attempt.cost_pico is None else pico_to_nano_up(attempt.cost_pico)

    def of_request(self, cost_pico: int, record: Record) -> int:
        return pico_to_nano_up(cost_pico)

    def of_ledger(self, spent: SpentReader) -> int:
        return pico_to_nano_up(spent.pico)


class Tokens:
    """Implements `Meter` for budgets in tokens. Input and output tokens of every class count. Tokens of simulated
    backends and of price 0 do not count. Tokens of unknown price count."""

    name = "tokens"

    def __init__(self, prices: PriceList) -> None:
        self._prices = prices

    def price(self, backend: Backend) -> Price | None:
        known = self._prices.price(backend)
        free = backend.simulated if known is None else known.free
        return _NOTHING if free else _TOKEN

    def limit(self, budget: Budget) -> int | None:
        return budget.limit_tokens

    def of_attempt(self, attempt: Attempt) -> int | None:
        if attempt.usage is None:
            return None
        return 0 if self.price(attempt.backend) is _NOTHING else attempt.usage.total

    def of_request(self, cost_pico: int, record: Record) -> int:
        return sum(self.of_attempt(attempt) or 0 for attempt in record.attempts)

    def of_ledger(self, spent: SpentReader) -> int:
        return spent.tokens
