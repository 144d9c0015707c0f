"""The hold of one comparison call: on the cap on comparing and on the team's budgets, both before the call."""

from __future__ import annotations

from gateway.admission.no_hold import RequestHold
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.protocols import PriceList
from gateway.domain.record import Attempt
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached
from gateway.domain.tenant import Tenant
from gateway.errors import BudgetExhausted
from gateway.learning.spend_cap import SpendCap

_SPARE_TOKENS = 64
"""Beside a quarter more than is estimated: a backend may count its input otherwise."""


KIND = "shadow"
"""The kind of ledger rows, and of attempts, whose answers go to no client."""


def worst(price: Price, input_tokens: int, output_tokens: int) -> int:
    """Pico-dollars that one call may cost."""
    return price.most(input_tokens * 5 // 4 + _SPARE_TOKENS, output_tokens, cache_writes=True)


class BackgroundHold:
    """Implements `Hold` of domain/protocols.py, for one call. What its price is unknown of is not called."""

    covers = float("inf")

    def __init__(
        self, spend_cap: SpendCap, budget: RequestHold, prices: PriceList, tenant: Tenant, most_output: int
    ) -> None:
        """`budget`: the team's own hold. `most_output`: tokens that the answer may have."""
        self._spend_cap, self._budget, self._prices, self._tenant = spend_cap, budget, prices, tenant
        self.output_limit: int | None = most_output
        self._held: list[tuple[str, int]] = []
        """Period and pico-dollars."""

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        """Raises BudgetExhausted, SQLAlchemyError."""
        price = self._prices.price(backend)
        if price is None:
            raise BudgetExhausted(f"{backend.name} has no known price, so nobody can say what comparing would cost.")
        await self._budget.extend(backend, input_tokens, attached, marked=marked)
        paid, most = self._budget.output_limit, self.output_limit or 0
        self.output_limit = most if paid is None else min(paid, most)
        pico = worst(price, input_tokens, self.output_limit)
        period = await self._spend_cap.hold(self._tenant, pico)
        if period is None:
            raise BudgetExhausted("What comparing may cost in this window is spent, or too little is left of it.")
        self._held.append((period, pico))

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Nothing streams."""

    def follow(self, attempt: Attempt) -> None:
        """There is only one."""

    async def settle(self, cost_pico: int) -> None:
        """The call cost so much. Raises SQLAlchemyError."""
        self._budget.settle(cost_pico)
        self._budget.release()
        held, self._held = self._held, []
        for number, (period, pico) in enumerate(held):
            await self._spend_cap.settle(self._tenant, period, pico, 0 if number else cost_pico)
