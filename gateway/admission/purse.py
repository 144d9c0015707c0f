"""The budgets of one team as one purse: what is taken is taken from all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gateway.admission import refusal
from gateway.domain.policy import Budget, Policy
from gateway.domain.record import Record
from gateway.errors import BudgetExhausted, StateUnavailable
from gateway.state.lease import Lease, Short
from gateway.state.leases import Leases

_LOOK_S = 0.1
"""Holds that other workers end are noticed this soon."""


@dataclass(frozen=True, slots=True)
class Account:
    """One budget in one window. Amounts on the lease are nano-dollars."""

    budget: Budget
    lease: Lease
    ends: float


class Freed:
    """Wakes whoever waits for a hold of this worker to end."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._awaited = False

    def tell(self) -> None:
        if self._awaited:
            self._event.set()
            self._event, self._awaited = asyncio.Event(), False

    async def wait(self, timeout_s: float) -> None:
        event, self._awaited = self._event, True
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return


class Purse:
    """Of one team under one policy, until the first of its windows ends."""

    def __init__(
        self,
        team: str,
        policy: Policy,
        accounts: tuple[Account, ...],
        leases: Leases,
        freed: Freed,
        time: Callable[[], float],
    ) -> None:
        self.team, self.policy, self.accounts = team, policy, accounts
        self.until = min((account.ends for account in accounts), default=float("inf"))
        self.leases = tuple(account.lease for account in accounts)
        self._leases, self._freed, self._time = leases, freed, time

    @property
    def known(self) -> bool:
        for lease in self.leases:  # noqa: SIM110 - `all` over a generator costs more than the look
            if not lease.generation:
                return False
        return True

    @property
    def remaining(self) -> int:
        """What the tightest budget has left beside all holds; 0 while unknown."""
        return min([lease.remaining for lease in self.leases])

    def seen_within(self, age_s: float) -> bool:
        """Are the counters known, and that lately?"""
        oldest = self._leases.now - age_s
        return min([lease.seen for lease in self.leases]) > oldest

    async def look(self, max_age_s: float) -> None:
        """Know the counters. Raises StateUnavailable."""
        await self._leases.refresh(self.leases, max_age_s)

    def exhausted(self) -> Account | None:
        """A budget that is used up and whose policy then refuses everything."""
        for account in self.accounts:
            lease = account.lease
            if account.budget.on_exhausted == "refuse" and lease.generation and lease.left <= 0:
                return account
        return None

    def refuse(self, account: Account) -> BudgetExhausted:
        return refusal.spent(self.team, account.budget, account.ends, self._time())

    async def take(self, units: int, held: int, record: Record, patience_s: float) -> None:
        """Set `units` aside on top of the `held` that the request already has.

        Waits up to `patience_s` while only the holds of other requests are in the way. Raises BudgetExhausted.
        """
        wants = [(lease, units) for lease in self.leases]
        if self.team in self._leases.away:
            record.degraded.add("state")
        if self._leases.try_take(wants):
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while True:
            try:
                short = await self._leases.take(wants)
            except StateUnavailable:
                self._without_state(units, record)
                return
            if short is None:
                return
            left_s = deadline - loop.time()
            if left_s <= 0 or short.lease.left < held + units:
                raise self._too_little(short, held)
            await self._freed.wait(min(_LOOK_S, left_s))

    def _without_state(self, units: int, record: Record) -> None:
        """What is leased goes first; then every budget's own rule decides."""
        record.degraded.add("state")
        for account in self.accounts:
            if account.lease.free < units and account.budget.on_state_loss == "refuse":
                raise refusal.out_of_reach(self.team, account.budget)
        for lease in self.leases:
            if not self._leases.try_take([(lease, units)]):
                self._leases.force(lease, units)

    def _too_little(self, short: Short, held: int) -> BudgetExhausted:
        lease = short.lease
        account = next(account for account in self.accounts if account.lease is lease)
        if lease.left <= 0:
            return self.refuse(account)
        others = min(lease.left, max(0, lease.held + lease.busy - held))
        need = refusal.Need(held + short.wanted, lease.left, others)
        return refusal.too_little(self.team, account.budget, account.ends, self._time(), need)

    def give(self, units: int) -> None:
        """A hold ends and nothing was spent."""
        for lease in self.leases:
            self._leases.give(lease, units)
        self._freed.tell()

    def settle(self, held: int, cost: int) -> None:
        """A hold ends and `cost` was spent."""
        for lease in self.leases:
            self._leases.settle(lease, held, cost)
        self._freed.tell()
