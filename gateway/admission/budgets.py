"""Checks budgets and opens holds for organisation, team, key, end user and session, in US dollars or tokens per
window.

Counters are leased (`state/leases/leases.py`), so settled spend plus the holds of all workers never exceed a hard
limit. Far from the limit, a hold only changes memory. A counter is rebuilt from the ledger if it is missing, has
another epoch, or had leases of a dead worker.

A request counts in the budget windows in which it began, even if it ends in later ones. So its holds, its
settlement and its ledger rows all have its start time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gateway.admission.budget_hold import PATIENCE_S, BudgetHold
from gateway.admission.combined_hold import BudgetHolds
from gateway.admission.counter_group import BudgetWindow, CounterGroup, Groups
from gateway.admission.levels import Levels
from gateway.admission.money_source import MoneySource
from gateway.admission.no_hold import NO_HOLD, RequestHold
from gateway.admission.output_forecast import OutputForecasts
from gateway.admission.request_limit import RequestLimit
from gateway.domain.money.budget import Budget
from gateway.domain.policy import Policy
from gateway.domain.protocols import PriceList, Spending, Subject
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.errors import StateUnavailable
from gateway.state.leases.leases import Leases
from gateway.state.redis.connection import State

__all__ = ["Budgets", "RequestHold"]

SUBJECTS: tuple[Subject, ...] = ("end_user", "session")
_MOST_KEYS = 10_000
_MOST_USERS = 2_000
_FRESH_S = 5.0
"""Maximum age in seconds of a counter's value that this worker has not changed. An older value is read again before it
counts."""
_EXHAUSTED_FRESH_S = 1.0


@dataclass(frozen=True, slots=True)
class _KeyBudgets:
    """The budgets that apply to one key, as groups of counters."""

    policy: Policy
    groups: Groups
    since: float
    until: float
    """The end of the window that ends first. If the clock is set back, the windows may end earlier."""
    each: tuple[Subject, ...]
    """The kinds of subject (end user, session) for which there are additional counter groups, one for each end user or
    session."""


class Budgets:
    """Checks budgets and opens holds. Opened once per worker."""

    def __init__(
        self,
        state: State,
        prices: PriceList,
        spending: Spending,
        *,
        workers: int = 1,
        patience_s: float = PATIENCE_S,
        leases: Leases | None = None,
        organisations: Mapping[str, tuple[Budget, ...]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`organisations`: name → budgets that all teams of the organisation share. `workers`: number of workers that
        share the counters. `patience_s`: maximum seconds for which a request waits for other holds to end."""
        self._leases = leases or Leases(state, workers=workers)
        self._levels = Levels(self._leases, prices, spending, organisations or {}, clock)
        self._patience_s, self._time, self._prices = patience_s, clock, prices
        self._expectations = OutputForecasts(clock)
        self._by_lineage: dict[str, _KeyBudgets] = {}
        """Lineage of a key → the counter groups of the key in the current windows. A lineage is a key together with the
        keys that replaced it by rotation."""
        self._earlier: dict[str, _KeyBudgets] = {}
        """Lineage of a key → the counter groups of the key in the previous windows. Requests that began in those
        windows are settled there."""
        self._users: dict[tuple[str, Subject, str], Groups] = {}
        """(Team, kind, end user or session) → counter groups, least recently used first."""
        self._counts = {"holds": 0, "exhausted": 0}

    async def open(self) -> None:
        await self._leases.open()

    async def aclose(self) -> None:
        """Report the spend and return all leased units."""
        await self._leases.aclose()

    def stats(self) -> dict[str, int | float | str]:
        own = {**self._counts, "users": len(self._users)}
        return {**own, **{f"leases.{name}": value for name, value in self._leases.stats().items()}}

    def accounts(self) -> Iterator[tuple[Policy, BudgetWindow]]:
        """Yield the current budget windows of teams whose policy paces spend, and of their organisations. Budgets of
        keys, end users and sessions are left out."""
        for key_budgets in self._by_lineage.values():
            if key_budgets.policy.pacing.enabled:
                for group in key_budgets.groups:
                    for account in group.accounts:
                        if account.budget.per in ("team", "organisation"):
                            yield key_budgets.policy, account

    async def refuse_exhausted(
        self, tenant: Tenant, end_user: str = "", at: float | None = None, session: str = ""
    ) -> Groups:
        """Raise BudgetExhausted if an exhausted budget refuses all requests, even cache hits. Otherwise, return the
        counter groups of the request, which `hold` needs.

        `at`: time at which the request began (Unix seconds); None: now.
        """
        groups = self._groups_of(tenant, end_user, session, self._time() if at is None else at)
        for group in groups:
            if group.refusing and not group.sound(_FRESH_S) and (account := await self._spent(group)):
                self._counts["exhausted"] += 1
                raise group.refuse(account)
        return groups

    async def read_ahead(self, tenant: Tenant) -> None:
        """Read the counters of the tenant's budgets, so that its first request finds them. Takes no units. A request
        that arrives meanwhile waits for the same read. Raises StateUnavailable.
        """
        for group in self._groups_of(tenant, "", "", self._time()):
            await group.look(_FRESH_S)

    async def _spent(self, group: CounterGroup) -> BudgetWindow | None:
        """Return an exhausted budget of `group`, or None. The counters are read again first if the values that this
        worker knows are old.
        """
        for max_age_s in (_FRESH_S, _EXHAUSTED_FRESH_S):
            try:
                await group.look(max_age_s)
            except StateUnavailable:
                break  # the values that this worker knows are the best that are available
            if group.exhausted() is None:
                break
        return group.exhausted()

    def hold(
        self, tenant: Tenant, record: Record, request: CompletionRequest | None = None, groups: Groups | None = None
    ) -> RequestHold:
        """Return a hold for one request, without any held money yet.

        `request`: its fields may limit the length of the answer. `groups`: result of `refuse_exhausted` for this
        request; None: the groups are looked up.
        """
        self._counts["holds"] += 1
        if groups is None:
            groups = self._groups_of(tenant, record.end_user, record.session, record.started_at)
        sources: tuple[MoneySource, ...] = groups
        if (most := tenant.policy.max_usd_per_request) is not None:
            place = f"in the policy of team {tenant.team}"
            sources = (RequestLimit(most, "max_usd_per_request", place, self._prices), *sources)
        if request is not None and (most := request.controls.max_usd) is not None:
            sources = (RequestLimit(most, "x-thriftgate-max-usd", "in the request", self._prices), *sources)
        if len(sources) == 1:
            return BudgetHold(sources[0], self._expectations, record, request, self._patience_s)
        if not sources:
            return NO_HOLD
        return BudgetHolds(
            tuple([BudgetHold(group, self._expectations, record, request, self._patience_s) for group in sources])
        )

    def _groups_of(self, tenant: Tenant, end_user: str, session: str, at: float) -> Groups:
        key_budgets = self._by_lineage.get(tenant.key.lineage)
        if (
            key_budgets is None
            or key_budgets.policy is not tenant.policy
            or not key_budgets.since <= at < key_budgets.until
        ):
            key_budgets = self._of_other_window(tenant, at)
        groups = key_budgets.groups
        for per in key_budgets.each:
            if name := end_user if per == "end_user" else session:
                groups += self._of_subject(tenant, per, name, at)
        return groups

    def _of_other_window(self, tenant: Tenant, at: float) -> _KeyBudgets:
        """The budgets that apply to the tenant's key, in the windows that contain the time `at`. This is used for
        requests that began in an earlier window."""
        lineage = tenant.key.lineage
        last, key_budgets = self._by_lineage.get(lineage), self._earlier.get(lineage)
        if (
            key_budgets is None
            or key_budgets.policy is not tenant.policy
            or not key_budgets.since <= at < key_budgets.until
        ):
            key_budgets = self._open_window(tenant, at)
        if last is not None and last.policy is tenant.policy and at < last.since <= self._time():
            self._earlier[lineage] = key_budgets
            return key_budgets
        if last is not None:
            self._earlier[lineage] = last
        self._by_lineage[lineage] = key_budgets
        return key_budgets

    def _open_window(self, tenant: Tenant, at: float) -> _KeyBudgets:
        if len(self._by_lineage) >= _MOST_KEYS:
            self._by_lineage.clear()
            self._earlier.clear()
        groups = self._levels.of_key(tenant, at)
        since = max((group.since for group in groups), default=0.0)
        until = min((group.until for group in groups), default=float("inf"))
        levels = {budget.per for budget in tenant.policy.budget}
        each = tuple(per for per in SUBJECTS if per in levels)
        return _KeyBudgets(tenant.policy, groups, since, until, each)

    def _of_subject(self, tenant: Tenant, per: Subject, name: str, at: float) -> Groups:
        """The counter groups of one end user or session. The most recently used groups are kept in memory for
        further requests.
        """
        place, policy = (tenant.team, per, name), tenant.policy
        groups = self._users.pop(place, ())
        if not groups or any(one.policy is not policy or not one.since <= at < one.until for one in groups):
            groups = self._levels.of_subject(tenant, per, name, at)
        self._users[place] = groups
        if len(self._users) > _MOST_USERS:
            del self._users[next(iter(self._users))]
        return groups
