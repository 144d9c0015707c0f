"""Finds the budgets that apply to a request, and keeps their counters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

from gateway.admission.counter_group import BudgetWindow, CounterGroup, Settled
from gateway.admission.meter import Dollars, Meter, Tokens
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import window_bounds
from gateway.domain.protocols import BudgetChecker, PriceList, Spending, SpentReader, Subject
from gateway.domain.tenant import Tenant
from gateway.state.leases.counter import MOST
from gateway.state.leases.leases import Leases

_DAY_S = 86_400
_LONGEST_S = 40 * _DAY_S
_USER_LIFE_S = 3600
"""Seconds for which the counter of an end user or session is kept after its last use. There may be very many of these
counters, and they can be rebuilt from the ledger."""

Known = Callable[[float, float], Awaitable[SpentReader]]
"""A function that reads the spend of requests that began in `[since, until)`."""


@dataclass(frozen=True, slots=True)
class _Level:
    """A level at which budgets may be shared, such as the team."""

    tag: str
    name: str
    """Level and owner, as in the names of the counters."""
    owner: str
    where: str
    known: Known
    budgets: Sequence[tuple[int, Budget]]
    """(Index in the policy file, budget) of each budget."""
    many: bool = False
    """Whether the level has very many owners. Then no units are leased before they are needed."""


class Levels:
    """The levels of budgets: organisation, team, key, and end user or session."""

    def __init__(
        self,
        leases: Leases,
        prices: PriceList,
        spending: Spending,
        organisations: Mapping[str, tuple[Budget, ...]],
        clock: Callable[[], float],
    ) -> None:
        self._leases, self._spending, self._time = leases, spending, clock
        self._organisations = organisations
        self._meters: tuple[Meter, ...] = (Dollars(prices), Tokens(prices))
        self._freed = Settled()
        self._gatherings: dict[tuple[Subject, str, float, float], _Gathering] = {}

    def of_key(self, tenant: Tenant, at: float) -> tuple[CounterGroup, ...]:
        """The counter groups that apply to a key. The group of the team's budgets in dollars comes first. Budgets of
        end users and sessions are not included. `at`: Unix time that selects the windows.
        """
        team, key, organisation = tenant.team, tenant.key.lineage, tenant.organisation
        budgets, spent = list(enumerate(tenant.policy.budget)), self._spending.spent
        of_team = _Level(
            tag=team,
            name="team",
            owner=f"team {team}",
            where="budget.* in the team's policy",
            known=lambda since, until: spent(BudgetChecker(team=team), since, until),
            budgets=[each for each in budgets if each[1].per == "team"],
        )
        of_key = _Level(
            tag=team,
            name=f"key:{key}",
            owner=f"key {key} of team {team}",
            where="budget.* (per: key) in the team's policy",
            known=lambda since, until: spent(BudgetChecker(team=team, key_id=key), since, until),
            budgets=[each for each in budgets if each[1].per == "key"],
        )
        above = _Level(
            tag=f"organisation {organisation}",
            name="organisation",
            owner=f"organisation {organisation}",
            where=f"organisations.{organisation}.budget.* in gateway.yaml",
            known=lambda since, until: spent(BudgetChecker(organisation=organisation), since, until),
            budgets=list(enumerate(self._organisations.get(organisation, ()))),
        )
        return self._groups(tenant, at, [of_team, of_key]) + self._groups(tenant, at, [above])

    def of_subject(self, tenant: Tenant, per: Subject, name: str, at: float) -> tuple[CounterGroup, ...]:
        """The counter groups of the end user or session with this `name`. `per`: whether the name is an end user or
        a session.
        """
        team = tenant.team
        level = _Level(
            tag=f"{team} {blake2b(name.encode(), digest_size=8).hexdigest()}",
            name=per,
            owner=f"this {per.replace('_', ' ')} of team {team}",
            where=f"budget.* (per: {per}) in the team's policy",
            known=lambda since, until: self._spent_by(per, team, since, until, name),
            budgets=[each for each in enumerate(tenant.policy.budget) if each[1].per == per],
            many=True,
        )
        return self._groups(tenant, at, [level])

    def _groups(self, tenant: Tenant, at: float, levels: Sequence[_Level]) -> tuple[CounterGroup, ...]:
        """The counter groups of `levels`, one group for each meter (dollars or tokens). The counters of all `levels`
        must share one hash tag."""
        tag, rest = levels[0].tag, (self._leases, self._freed, self._time)
        return tuple(
            CounterGroup(tag, tenant.policy, meter, accounts, *rest)
            for meter in self._meters
            if (accounts := tuple(account for level in levels for account in self._accounts(level, meter, at)))
        )

    def _accounts(self, level: _Level, meter: Meter, at: float) -> Iterable[BudgetWindow]:
        now = self._time()
        for place, budget in level.budgets:
            limit = meter.limit(budget)
            if limit is None:
                continue
            start, end = window_bounds(budget.window, budget.timezone, at)
            life_s = _USER_LIFE_S if level.many else _DAY_S + min(max(0.0, end - now), _LONGEST_S)
            lease = self._leases.counter(
                level.tag,
                *("budget", level.name, meter.name, str(place), budget.window, budget.timezone, str(int(start))),
                kind="sum",
                limit=limit if budget.hard else MOST,
                life_ms=int(1000 * life_s),
                rebuild=partial(_base, level.known, start, end, meter),
                ahead=not level.many,
            )
            yield BudgetWindow(budget, level.owner, level.where, lease, limit, start, end)

    async def _spent_by(self, per: Subject, team: str, since: float, until: float, name: str) -> SpentReader:
        """Read the spend of one end user or session from the ledger. Calls that arrive during a read wait for its end.
        Then one further read serves all of them.
        """
        asked = per, team, since, until
        gathering = self._gatherings.get(asked)
        if gathering is None:
            gathering = self._gatherings[asked] = _Gathering(partial(self._spending.spent_by_each, *asked))
        try:
            return await gathering.of(name)
        finally:
            if gathering.idle:
                self._gatherings.pop(asked, None)


async def _base(known: Known, start: float, end: float, meter: Meter) -> int:
    """The units that were spent from `start` to `end` (Unix seconds), according to the ledger. `known`: reads the
    spend from the ledger.
    """
    return meter.of_ledger(await known(start, end))


class _Gathering:
    """Combines concurrent reads of single values into batches. A value that is requested during a read is read in
    the next batch.
    """

    def __init__(self, ask: Callable[[Sequence[str]], Awaitable[Mapping[str, SpentReader]]]) -> None:
        self._ask = ask
        self._turn = asyncio.Lock()
        self._waiting: set[str] = set()
        self._answers: dict[str, SpentReader] = {}
        self._people = 0

    @property
    def idle(self) -> bool:
        return not self._people

    async def of(self, name: str) -> SpentReader:
        self._waiting.add(name)
        self._people += 1
        try:
            async with self._turn:
                if name in self._waiting:  # no read of this name has been requested since the last batch
                    asked, self._waiting = self._waiting, set()
                    try:
                        found = await self._ask(tuple(asked))
                    except BaseException:
                        self._waiting |= asked  # later requests start a new batch
                        raise
                    self._answers |= {each: found.get(each, SpentReader()) for each in asked}
                return self._answers[name]
        finally:
            self._people -= 1
