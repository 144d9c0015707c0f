"""Holds the money for one comparison call, on the limit for comparisons and on the team's budgets."""

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
"""Input tokens that are held in addition to 5/4 of the estimate, because the backend may count the input differently.
"""


KIND = "shadow"
"""The kind of attempts, and of their ledger rows, whose answers are not sent to any client."""


def worst(price: Price, input_tokens: int, output_tokens: int) -> int:
    """The maximum cost of one call, in pico-dollars."""
    return price.most(input_tokens * 5 // 4 + _SPARE_TOKENS, output_tokens, cache_writes=True)


class BackgroundHold:
    """Implements `Hold` of domain/protocols.py for a single call whose answer is only compared with another answer. A
    backend whose price is unknown is not called."""

    covers = float("inf")

    def __init__(
        self, spend_cap: SpendCap, budget: RequestHold, prices: PriceList, tenant: Tenant, most_output: int
    ) -> None:
        """`budget`: the money held on the team's own budgets. `most_output`: maximum output tokens of the answer."""
        self._spend_cap, self._budget, self._prices, self._tenant = spend_cap, budget, prices, tenant
        self.output_limit: int | None = most_output
        self._held: list[tuple[str, int]] = []
        """(Window, pico-dollars) of each hold on the limit for comparisons."""

    def left_nano(self) -> int | None:
        return self._budget.left_nano()

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        """Hold the maximum cost of the call. Raises BudgetExhausted, SQLAlchemyError."""
        price = self._prices.price(backend)
        if price is None:
            raise BudgetExhausted(f"{backend.name} has no known price, so the cost of comparing is unknown.")
        await self._budget.extend(backend, input_tokens, attached, marked=marked)
        paid, most = self._budget.output_limit, self.output_limit or 0
        self.output_limit = most if paid is None else min(paid, most)
        pico = worst(price, input_tokens, self.output_limit)
        period = await self._spend_cap.hold(self._tenant, pico)
        if period is None:
            raise BudgetExhausted("Too little is left of the limit for the cost of comparisons in this period.")
        self._held.append((period, pico))

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Does nothing, because comparison calls do not stream."""

    def follow(self, attempt: Attempt) -> None:
        """Does nothing, because there is only one attempt."""

    async def settle(self, cost_pico: int) -> None:
        """Book the actual cost of the call, and release the rest of the held money. Raises SQLAlchemyError."""
        self._budget.settle(cost_pico)
        self._budget.release()
        held, self._held = self._held, []
        for number, (period, pico) in enumerate(held):
            await self._spend_cap.settle(self._tenant, period, pico, 0 if number else cost_pico)
