"""Groups the budgets that have the same level and the same unit. Each hold, settlement and release applies to all
budgets of a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gateway.admission import messages
from gateway.admission.meter import Meter
from gateway.domain.backend import Backend
from gateway.domain.money.budget import Budget
from gateway.domain.policy import Policy
from gateway.domain.record import Record
from gateway.errors import BudgetExhausted, StateUnavailable
from gateway.state.leases.counter import Lease, NotEnough
from gateway.state.leases.leases import Leases

_LOOK_S = 0.1
"""Maximum seconds until a waiting request notices that a hold of another worker has ended."""


@dataclass(frozen=True, slots=True)
class BudgetWindow:
    """One budget in one window, with its counter in dollars or tokens. The counter of a soft budget has no limit."""

    budget: Budget
    owner: str
    """The owner of the budget, as it is named in messages."""
    where: str
    """The file and the key that set the limit."""
    lease: Lease
    limit: int
    begins: float
    ends: float

    @property
    def spent(self) -> int:
        """Settled units, as far as this worker knows them."""
        return self.lease.limit - self.lease.left


class Settled:
    """An event that is set when a hold of this worker ends. Requests that wait for units wait for this event."""

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


class CounterGroup:
    """A group of budgets and their counters, which are read together. The counters are valid from the latest start to
    the earliest end of the budgets' windows."""

    def __init__(
        self,
        tag: str,
        policy: Policy,
        meter: Meter,
        accounts: tuple[BudgetWindow, ...],
        leases: Leases,
        freed: Settled,
        time: Callable[[], float],
    ) -> None:
        self.tag, self.policy, self.meter, self.accounts = tag, policy, meter, accounts
        self.price = meter.price
        self.since = max(account.begins for account in accounts)
        self.until = min(account.ends for account in accounts)
        self.leases = tuple(account.lease for account in accounts)
        hard = [account for account in accounts if account.budget.hard]
        self.refusing = tuple(account for account in hard if account.budget.on_exhausted == "refuse")
        self.soft = tuple(account for account in accounts if not account.budget.hard)
        self.truncates = any(account.budget.on_exhausted == "truncate" for account in hard)
        """Whether an answer is ended when it reaches the limit."""
        self.bounds = any(account.budget.on_exhausted != "finish" for account in hard)
        """Whether the maximum cost of all calls must stay within a limit. If not, only the expected cost is held."""
        self._needs_price = next(
            (each for each in hard if each.budget.limit_usd is not None and each.budget.on_unpriced == "refuse"), None
        )
        self._leases, self._freed, self._time = leases, freed, time

    @property
    def known(self) -> bool:
        for lease in self.leases:  # noqa: SIM110 - `all` over a generator takes longer than the loop
            if not lease.generation:
                return False
        return True

    @property
    def remaining(self) -> int:
        """The number of units that can still be held on every budget of the group; 0 while a counter is unknown."""
        return min([lease.remaining for lease in self.leases])

    @property
    def left(self) -> int:
        """The lowest number of unspent units among the budgets of the group. Held units count as unspent."""
        return min([lease.left for lease in self.leases])

    def sound(self, age_s: float) -> bool:
        """Whether all counters were read within the last `age_s` seconds, and no exhausted budget refuses all
        requests.
        """
        oldest = self._leases.now - age_s
        for lease in self.leases:
            if lease.seen <= oldest:
                return False
        return self.exhausted() is None

    async def look(self, max_age_s: float) -> None:
        """Read the counters again if their values are older than `max_age_s` seconds. Raises StateUnavailable."""
        await self._leases.refresh(self.leases, max_age_s)

    def exhausted(self) -> BudgetWindow | None:
        """The first exhausted budget of the group that refuses requests when it is exhausted; None if there is none."""
        for account in self.refusing:
            if account.lease.generation and account.lease.left <= 0:
                return account
        return None

    def refuse_unpriced(self, backend: Backend, what: str = "") -> None:
        """Raise BudgetExhausted if a hard budget in dollars forbids calls of unknown price.

        `what`: the unit without a price; empty if the model has no price. The operator's own machines count as
        free.
        """
        if self._needs_price is not None and (what or not backend.own):
            raise messages.unpriced(self._named(self._needs_price), backend, what)

    def note_soft(self, record: Record) -> None:
        """Record on the request which soft budgets are exhausted."""
        for account in self.soft:
            if account.spent >= account.limit and account.budget.title not in record.over_budget:
                record.over_budget += (account.budget.title,)

    def refuse(self, account: BudgetWindow) -> BudgetExhausted:
        return messages.spent(self._named(account), self._time())

    def try_take(self, units: int, record: Record) -> bool:
        """Take `units` from those that this worker has reserved at the state server. Returns False, without taking
        any, if too few are left.
        """
        if self.tag in self._leases.away:
            record.degraded.add("state")
        return self._leases.try_hold(self.leases, units)

    async def take(self, units: int, held: int, record: Record, patience_s: float) -> None:
        """Take `units` at the state server, for a request that holds `held` units already. Waits up to `patience_s`
        seconds if other requests hold the missing units. Raises BudgetExhausted."""
        wants = [(lease, units) for lease in self.leases]
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

    async def stretch(self, units: int, held: int, record: Record) -> BudgetExhausted | None:
        """Take `units` for an answer in progress, without waiting. `held`: units that are held for the request
        already. Returns an error if a budget has too few units left.

        If a budget lets answers finish, the units are taken although they exceed the budget. Raises BudgetExhausted
        if the state server is unavailable and a budget refuses in this case.
        """
        wants, overdrawn = [(lease, units) for lease in self.leases], []
        try:
            while wants and (short := await self._leases.ask(wants)):
                if self._account(short.lease).budget.on_exhausted != "finish":
                    return self._too_little(short, held)
                wants.remove((short.lease, units))
                overdrawn.append(short.lease)
        except StateUnavailable:
            self._without_state(units, record)
            return None
        for lease in overdrawn:
            self._leases.force(lease, units)
        return None

    def _without_state(self, units: int, record: Record) -> None:
        """Take `units` while the state server is unavailable. If this worker has reserved too few units, the setting
        `on_state_loss` of each hard budget decides whether the request continues. Raises BudgetExhausted.
        """
        record.degraded.add("state")
        for account in self.accounts:
            budget = account.budget
            if account.lease.free < units and budget.hard and budget.on_state_loss == "refuse":
                raise messages.out_of_reach(self._named(account))
        for lease in self.leases:
            if not self._leases.try_take([(lease, units)]):
                self._leases.force(lease, units)

    def _account(self, lease: Lease) -> BudgetWindow:
        return next(account for account in self.accounts if account.lease is lease)

    def _named(self, account: BudgetWindow) -> messages.NamedBudget:
        return messages.NamedBudget(account.budget, account.owner, account.where, account.ends)

    def _too_little(self, short: NotEnough, held: int) -> BudgetExhausted:
        lease, account = short.lease, self._account(short.lease)
        if lease.left <= 0:
            return self.refuse(account)
        others = min(lease.left, max(0, lease.held + lease.busy - held))
        need = messages.Shortfall(held + short.wanted, lease.left, others)
        return messages.too_little(self._named(account), self._time(), need)

    def give(self, units: int) -> None:
        """End a hold of `units` without spend."""
        self._leases.give(self.leases, units)
        self._freed.tell()

    def settle(self, held: int, cost: int) -> None:
        """End a hold of `held` units with a spend of `cost` units."""
        self._leases.settle(self.leases, held, cost)
        self._freed.tell()


Groups = tuple[CounterGroup, ...]
