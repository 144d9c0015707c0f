"""Hard budgets in US dollars over calendar windows, several per team.

Counters are leased (see `state/leases.py`): what is spent and what all workers hold never exceeds a limit, and far from
it a hold touches memory only. A counter that is missing, of another epoch or left behind by a dead worker is rebuilt
from the ledger. A request belongs to the windows in which it began.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from gateway.admission.expect import Expectations
from gateway.admission.hold import PATIENCE_S, BudgetHold
from gateway.admission.purse import Account, Freed, Purse
from gateway.domain.policy import Budget
from gateway.domain.protocols import PriceList, Spending
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.domain.units import NANO_PER_USD, pico_to_nano_up
from gateway.domain.windows import window_bounds
from gateway.errors import StateUnavailable
from gateway.state.connection import State
from gateway.state.leases import Leases

__all__ = ["BudgetHold", "Budgets"]

_MOST_PURSES = 10_000
_FRESH_S = 5.0
"""A counter that nobody used for so long is looked at before it is believed."""
_EXHAUSTED_FRESH_S = 1.0
_DAY_S = 86_400
_LONGEST_S = 40 * _DAY_S


class Budgets:
    """Opened once per worker."""

    def __init__(
        self,
        state: State,
        prices: PriceList,
        spending: Spending,
        *,
        workers: int = 1,
        patience_s: float = PATIENCE_S,
        leases: Leases | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._leases = leases or Leases(state, workers=workers)
        self._prices, self._spending = prices, spending
        self._patience_s, self._time = patience_s, clock
        self._expectations = Expectations()
        self._freed = Freed()
        self._purses: dict[str, Purse] = {}
        self._counts = {"holds": 0, "exhausted": 0}

    async def open(self) -> None:
        await self._leases.open()

    async def aclose(self) -> None:
        """Report what was spent and give back what is held."""
        await self._leases.aclose()

    def stats(self) -> dict[str, int | float | str]:
        return {**self._counts, **{f"leases.{name}": value for name, value in self._leases.stats().items()}}

    async def exhausted(self, tenant: Tenant) -> Budget | None:
        """A budget that is used up and whose policy then refuses everything, cache hits included."""
        purse = self._purse(tenant)
        if purse is None:
            return None
        account = await self._spent(purse)
        return account.budget if account else None

    async def refuse_exhausted(self, tenant: Tenant) -> None:
        """Raises BudgetExhausted, saying which budget, when `exhausted` finds one."""
        purse = self._purse(tenant)
        if purse is not None and (account := await self._spent(purse)):
            self._counts["exhausted"] += 1
            raise purse.refuse(account)

    async def _spent(self, purse: Purse) -> Account | None:
        account = purse.exhausted()
        if account is None and purse.seen_within(_FRESH_S):
            return None
        for max_age_s in (_FRESH_S, _EXHAUSTED_FRESH_S):
            try:
                await purse.look(max_age_s)
            except StateUnavailable:
                break  # the local view is the best there is
            if purse.exhausted() is None:
                break
        return purse.exhausted()

    def hold(self, tenant: Tenant, record: Record, request: CompletionRequest | None = None) -> BudgetHold:
        """An empty hold for one request; `request` tells how long its answer may become."""
        self._counts["holds"] += 1
        purse = self._purse(tenant)
        return BudgetHold(purse, self._prices, self._expectations, record, request, self._patience_s)

    def _purse(self, tenant: Tenant) -> Purse | None:
        """None without budgets."""
        policy = tenant.policy
        if not policy.budget:
            return None
        purse = self._purses.get(tenant.team)
        if purse is None or purse.policy is not policy or self._time() >= purse.until:
            if len(self._purses) >= _MOST_PURSES:
                self._purses.clear()
            purse = self._purses[tenant.team] = self._open_purse(tenant)
        return purse

    def _open_purse(self, tenant: Tenant) -> Purse:
        now, team = self._time(), tenant.team
        accounts = []
        for place, budget in enumerate(tenant.policy.budget):
            start, end = window_bounds(budget.window, budget.timezone, now)
            lease = self._leases.counter(
                team,
                *("budget", str(place), budget.window, budget.timezone, str(int(start))),
                kind="sum",
                limit=int(budget.limit_usd * NANO_PER_USD),
                life_ms=int(1000 * (_DAY_S + min(end - now, _LONGEST_S))),
                rebuild=partial(self._settled, team, start),
            )
            accounts.append(Account(budget, lease, end))
        return Purse(team, tenant.policy, tuple(accounts), self._leases, self._freed, self._time)

    async def _settled(self, team: str, start: float) -> int:
        """Nano-dollars on the ledger since `start`."""
        return pico_to_nano_up(await self._spending.spent_pico(team, start))
