"""Checks budgets and opens holds for organisation, team, key, end user and session, in US dollars or tokens per window.

Counters are leased (`state/leases/leases.py`): settled spend plus the holds of all workers never exceeds a hard limit,
and far from the limit a hold only touches memory. A counter is rebuilt from the ledger if it is missing, has another
epoch, or belonged to a dead worker. A request counts in the windows in which it began, however long it runs: holds,
settlement and ledger rows all use its start time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gateway.admission.budget_hold import PATIENCE_S, BudgetHold
from gateway.admission.combined_hold import BudgetHolds
from gateway.admission.counter_group import BudgetWindow, CounterGroup
from gateway.admission.levels import Levels
from gateway.admission.no_hold import NO_HOLD, RequestHold
from gateway.admission.output_forecast import OutputForecasts
from gateway.domain.policy import Budget, Policy
from gateway.domain.protocols import PriceList, Spending, Subject
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.errors import StateUnavailable
from gateway.state.leases.leases import Leases
from gateway.state.redis.connection import State

__all__ = ["Budgets", "RequestHold"]

SUBJECTS: tuple[Subject, ...] = ("end_user", "session")
_MOST_WALLETS = 10_000
_MOST_USERS = 2_000
_FRESH_S = 5.0
"""Seconds after which an unused counter is read again before its value counts."""
_EXHAUSTED_FRESH_S = 1.0


@dataclass(frozen=True, slots=True)
class _KeyBudgets:
    """The counter groups of one key."""

    policy: Policy
    groups: tuple[CounterGroup, ...]
    since: float
    until: float
    """The end of the first of their windows. A clock that was set back may also end them early."""
    each: tuple[Subject, ...]
    """Of what each one has further counter groups: end users, sessions."""


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
        organisations: Mapping[str, tuple[Budget, ...]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`organisations`: their own budgets, which all their teams share."""
        self._leases = leases or Leases(state, workers=workers)
        self._levels = Levels(self._leases, prices, spending, organisations or {}, clock)
        self._patience_s, self._time = patience_s, clock
        self._expectations = OutputForecasts()
        self._wallets: dict[str, _KeyBudgets] = {}
        """Lineage of the key → its groups in the current windows."""
        self._earlier: dict[str, _KeyBudgets] = {}
        """Lineage of the key → its groups in the previous windows, where requests that began in them still settle."""
        self._users: dict[tuple[str, Subject, str], tuple[CounterGroup, ...]] = {}
        """(Team, kind, end user or session) → counter groups, least recently used first."""
        self._counts = {"holds": 0, "exhausted": 0}

    async def open(self) -> None:
        await self._leases.open()

    async def aclose(self) -> None:
        """Report the spend and give back all holds."""
        await self._leases.aclose()

    def stats(self) -> dict[str, int | float | str]:
        own = {**self._counts, "users": len(self._users)}
        return {**own, **{f"leases.{name}": value for name, value in self._leases.stats().items()}}

    def accounts(self) -> Iterator[tuple[Policy, BudgetWindow]]:
        """The budget windows in use that are shared by paced teams or their organisations."""
        for key_budgets in self._wallets.values():
            if key_budgets.policy.pacing.enabled:
                for group in key_budgets.groups:
                    for account in group.accounts:
                        if account.budget.per in ("team", "organisation"):
                            yield key_budgets.policy, account

    async def refuse_exhausted(
        self, tenant: Tenant, end_user: str = "", at: float | None = None, session: str = ""
    ) -> None:
        """Raises BudgetExhausted, which names the budget, if one is exhausted whose policy also refuses cache hits.

        `at`: when the request began (Unix seconds), else now.
        """
        for group in self._purses(tenant, end_user, session, self._time() if at is None else at):
            if group.refusing and not group.sound(_FRESH_S) and (account := await self._spent(group)):
                self._counts["exhausted"] += 1
                raise group.refuse(account)

    async def _spent(self, group: CounterGroup) -> BudgetWindow | None:
        """The exhausted budget of `group`, after its counters were read again; None without one."""
        for max_age_s in (_FRESH_S, _EXHAUSTED_FRESH_S):
            try:
                await group.look(max_age_s)
            except StateUnavailable:
                break  # the local view is the best available
            if group.exhausted() is None:
                break
        return group.exhausted()

    def hold(self, tenant: Tenant, record: Record, request: CompletionRequest | None = None) -> RequestHold:
        """An empty hold for one request. `request` limits how long its answer may become."""
        self._counts["holds"] += 1
        groups = self._purses(tenant, record.end_user, record.session, record.started_at)
        if len(groups) == 1:
            return BudgetHold(groups[0], self._expectations, record, request, self._patience_s)
        if not groups:
            return NO_HOLD
        return BudgetHolds(
            tuple([BudgetHold(group, self._expectations, record, request, self._patience_s) for group in groups])
        )

    def _purses(self, tenant: Tenant, end_user: str, session: str, at: float) -> tuple[CounterGroup, ...]:
        key_budgets = self._wallets.get(tenant.key.lineage)
        if (
            key_budgets is None
            or key_budgets.policy is not tenant.policy
            or not key_budgets.since <= at < key_budgets.until
        ):
            key_budgets = self._other_wallet(tenant, at)
        groups = key_budgets.groups
        for per in key_budgets.each:
            if name := end_user if per == "end_user" else session:
                groups += self._of_subject(tenant, per, name, at)
        return groups

    def _other_wallet(self, tenant: Tenant, at: float) -> _KeyBudgets:
        """The groups for a window other than the most recent one. While requests of two windows are in progress, both
        are kept."""
        lineage = tenant.key.lineage
        last, key_budgets = self._wallets.get(lineage), self._earlier.get(lineage)
        if (
            key_budgets is None
            or key_budgets.policy is not tenant.policy
            or not key_budgets.since <= at < key_budgets.until
        ):
            key_budgets = self._open_wallet(tenant, at)
        if last is not None and last.policy is tenant.policy and at < last.since <= self._time():
            self._earlier[lineage] = key_budgets
            return key_budgets
        if last is not None:
            self._earlier[lineage] = last
        self._wallets[lineage] = key_budgets
        return key_budgets

    def _open_wallet(self, tenant: Tenant, at: float) -> _KeyBudgets:
        if len(self._wallets) >= _MOST_WALLETS:
            self._wallets.clear()
            self._earlier.clear()
        groups = self._levels.of_key(tenant, at)
        since = max((group.since for group in groups), default=0.0)
        until = min((group.until for group in groups), default=float("inf"))
        levels = {budget.per for budget in tenant.policy.budget}
        each = tuple(per for per in SUBJECTS if per in levels)
        return _KeyBudgets(tenant.policy, groups, since, until, each)

    def _of_subject(self, tenant: Tenant, per: Subject, name: str, at: float) -> tuple[CounterGroup, ...]:
        """The counter groups of an end user or session. The most recently used ones are kept, to save the look-up."""
        place, policy = (tenant.team, per, name), tenant.policy
        groups = self._users.pop(place, ())
        if not groups or any(one.policy is not policy or not one.since <= at < one.until for one in groups):
            groups = self._levels.of_subject(tenant, per, name, at)
        self._users[place] = groups
        if len(self._users) > _MOST_USERS:
            del self._users[next(iter(self._users))]
        return groups
