"""Computes in the background, for each team, how far its spend is ahead of an even spend (0..1). Routing reads the
result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from gateway.admission.counter_group import BudgetWindow
from gateway.domain.money.pacing import pressure
from gateway.domain.money.windows import window_bounds
from gateway.domain.policy import Policy
from gateway.runtime.tasks import Tasks

EVERY_S = 1.0


class TeamBudgets(Protocol):
    def accounts(self) -> Iterator[tuple[Policy, BudgetWindow]]:
        """Yield the current budget windows of teams with pacing, and of their organisations. A window may be yielded
        more than once.
        """
        ...


class Pacer:
    """Computes `pressures` in the background, so that a request only has to read one dictionary entry."""

    def __init__(
        self, budgets: TeamBudgets, *, every_s: float = EVERY_S, clock: Callable[[], float] = time.time
    ) -> None:
        self._budgets, self._every_s, self._time = budgets, every_s, clock
        self._tasks = Tasks()
        self._pressures: dict[str, float] = {}
        self.pressures: Mapping[str, float] = self._pressures
        """Team → the highest pressure of its budgets, 0..1. The pressure of a budget is how far its spend is ahead of
        an even spend. Teams without pressure are omitted."""

    async def open(self) -> None:
        self._tasks.spawn(self._pace(), "pacing")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def stats(self) -> dict[str, int | float | str]:
        return {"pressed": len(self._pressures)}

    async def _pace(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(self._every_s)

    def look(self) -> None:
        """Compute the pressures of all teams once."""
        now = self._time()
        found: dict[str, float] = {}
        seen: set[tuple[str, int]] = set()
        for policy, account in self._budgets.accounts():
            if not account.lease.generation or (policy.team, id(account.lease)) in seen:
                continue
            seen.add((policy.team, id(account.lease)))  # all keys of a team share the lease
            window = window_bounds(account.budget.window, account.budget.timezone, now)
            if window[1] == account.ends:  # otherwise the lease counts a window that has ended
                one = pressure(account.spent, account.limit, window, now, policy.pacing.tolerance)
                if one > found.get(policy.team, 0.0):
                    found[policy.team] = one
        for team in self._pressures.keys() - found.keys():
            del self._pressures[team]
        self._pressures.update(found)
