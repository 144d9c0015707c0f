"""Reads new ledger rows and stores the alerts that are due. Several processes may share one database."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gateway.alerts.alert import Alert
from gateway.alerts.delivery import deliveries
from gateway.alerts.detect import anomalies, cuts, hours, lost_hosts, measure, quality, slo, weekly_report
from gateway.alerts.detect.thresholds import BudgetWindow, due, due_ahead, least
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import window_bounds
from gateway.domain.policy import AlertsPolicy, Policy
from gateway.domain.protocols import Clock
from gateway.ledger.reports import objectives
from gateway.ledger.reports.objectives import Objective
from gateway.ledger.rows import Row
from gateway.ledger.store import evidence
from gateway.policy.inherit import DEFAULT
from gateway.state.leases import orphaned_holds
from gateway.state.sql.database import Database

LOOK_BACK_S = 3600.0
"""When a process starts, it also checks the budget windows that contained the time `LOOK_BACK_S` seconds ago. These
windows may have ended before any process checked their last rows."""
FORECAST_EVERY_S = 300.0
ANOMALIES_EVERY_S = 60.0
QUALITY_EVERY_S = 5.0
LOST_HOSTS_EVERY_S = 5.0
OBJECTIVES_EVERY_S = 60.0
CUTS_EVERY_S = 6 * 3600.0
REPORTS_EVERY_S = 60.0
OWNER = "organisation "
"""Prefix of an organisation's name in places where a team's name is expected. Names of teams contain no space."""
_GRAIN_S = 900
"""Times of ledger rows are rounded down to multiples of this number of seconds. In every time zone, windows begin at
such a multiple."""

Window = tuple[float, float]


class Watch:
    """Finds the alerts that are due. Use it in the process that writes the ledger; this process passes new rows to
    `notice`."""

    def __init__(
        self,
        database: Database,
        policies: Callable[[], Mapping[str, Policy]],
        *,
        organisations: Mapping[str, Sequence[Budget]] = MappingProxyType({}),
        reference_of: weekly_report.References = lambda policy: None,
        clock: Clock = time,
    ) -> None:
        """`organisations`: name → the budgets that all teams of the organisation share. `reference_of`: returns for a
        policy the backend with which weekly reports compare costs."""
        self._reference_of = reference_of
        self._database, self._policies, self._clock = database, policies, clock
        self._organisations = {
            name: Policy(team="organisation", organisation=name).model_copy(
                update={"team": OWNER + name, "budget": tuple(budgets), "alerts": AlertsPolicy(anomalies=False)}
            )
            for name, budgets in organisations.items()
            if budgets
        }
        self._seen: Mapping[str, Policy] | None = None
        self._touched: dict[str, set[float]] = {}
        self._noticed: dict[str, int] = {}
        """Team → pico-dollars of all rows that were passed to `notice`."""
        self._queried: dict[tuple[str, Window], tuple[int, int]] = {}
        """(Team, window) → (spend in the last query of the ledger, value of `_noticed` for the team before that
        query)."""
        self._known: set[str] = set()
        self._used: dict[tuple[str, str, str], tuple[float, float]] = {}
        self._next_checks: dict[tuple[str, str], float] = {}
        """(Team, budget or "anomalies") → time of the next check."""
        self._past: dict[str, tuple[int, dict[int, hours.Hour]]] = {}
        """Team → (end, figures of the hours before `end`). `end` is the number of an hour since 1970."""
        self._judged = (0, 0)
        """Ids of the newest comparison and the newest rating that were checked for quality alerts."""
        self._undrained: Counter[str] = Counter()
        self._objectives: tuple[Objective, ...] = ()

    def notice(self, rows: Iterable[Row]) -> None:
        """Pass new ledger rows, so that the next `check` examines their teams and windows."""
        for row in rows:
            if not row.simulated:
                grain = row.at // _GRAIN_S * _GRAIN_S
                self._touched.setdefault(row.team, set()).add(grain)
                self._noticed[row.team] = self._noticed.get(row.team, 0) + (row.cost_pico or 0)
                if row.organisation in self._organisations:
                    self._touched.setdefault(OWNER + row.organisation, set()).add(grain)

    async def check(self) -> list[Alert]:
        """Store the alerts that are due and new, and return them. Raises SQLAlchemyError; the next call then repeats
        the check."""
        policies, now = self._policies(), self._clock.time()
        touched, self._touched = self._touched, {}
        if policies is not self._seen:
            # At the start, or after a change of policies, every team must be checked.
            self._used.clear()
            self._queried.clear()
            self._next_checks.clear()
            back = {now, now - LOOK_BACK_S} if self._seen is None else {now}
            for team in [*policies, *(policy.team for policy in self._organisations.values())]:
                touched.setdefault(team, set()).update(back)
        try:
            found = await asyncio.to_thread(self._check, policies, touched, now)
        except BaseException:
            for team, times in touched.items():
                self._touched.setdefault(team, set()).update(times)
            raise
        self._seen = policies
        return found

    def used(self) -> dict[tuple[str, str, str], float]:
        """The spent share of each budget's limit: (team, window, limit) → share. If each key, end user or session has
        its own amount, the highest share counts."""
        now = self._clock.time()
        return {budget: share if now < end else 0.0 for budget, (share, end) in self._used.copy().items()}

    def undrained(self) -> dict[str, int]:
        """Host → the number of its dead workers for whose calls budgets still held money at the last check."""
        return dict(self._undrained)

    def objectives(self) -> tuple[Objective, ...]:
        """The teams' quality objectives, as measured at the last check."""
        return self._objectives

    def _check(self, policies: Mapping[str, Policy], touched: Mapping[str, set[float]], now: float) -> list[Alert]:
        fired = []
        for team, times in touched.items():
            policy = self._organisations.get(team.removeprefix(OWNER)) if team.startswith(OWNER) else policies.get(team)
            if (watched := policy or _of_default(team, policies)) and self._is_due(team, "cuts", CUTS_EVERY_S, now):
                fired += self._cuts(watched, now)
            if policy is None:
                continue
            for budget in policy.budget:
                for window in sorted({window_bounds(budget.window, budget.timezone, at) for at in {*times, now}}):
                    fired += self._check_budget(team, policy, budget, window, now)
            if policy.alerts.anomalies and self._is_due(team, "anomalies", ANOMALIES_EVERY_S, now):
                fired += self._store(self._anomalies(team, now), team, policy, None, now)
        if self._is_due("", "lost hosts", LOST_HOSTS_EVERY_S, now):
            fired += self._lost_hosts(policies, now)
        if self._is_due("", "reports", REPORTS_EVERY_S, now):
            fired += self._reports(policies, now)
        if self._is_due("", "objectives", OBJECTIVES_EVERY_S, now):
            fired += self._slos(policies, now)
        return fired + (self._quality(policies, now) if self._is_due("", "quality", QUALITY_EVERY_S, now) else [])

    def _lost_hosts(self, policies: Mapping[str, Policy], now: float) -> list[Alert]:
        """Store and return alerts for all teams and organisations whose budgets hold money for a lost host."""
        with self._database.read() as connection:
            holds = orphaned_holds.held(connection)
        fired: list[Alert] = []
        for team, one in lost_hosts.found(holds, now):
            named = self._organisations.get(team.removeprefix(OWNER)) if team.startswith(OWNER) else policies.get(team)
            if named is not None:
                fired += self._store([one], team, named, None, now)
        workers = {one.worker: one.host for one in holds}
        self._undrained = Counter(workers.values())
        return fired

    def _reports(self, policies: Mapping[str, Policy], now: float) -> list[Alert]:
        """Store and return the weekly reports about last week, for active teams whose policies name receivers."""
        fired: list[Alert] = []
        for team, policy in policies.items():
            if (week := weekly_report.last_week(now, policy.timezone)) is None:
                continue
            id = weekly_report.report_id(team, week)
            if not policy.alerts.weekly_report or id in self._known:
                continue
            with self._database.read() as connection:
                figures = weekly_report.read(connection, policy, week, self._reference_of, now)
            if figures.total.attempts or figures.total.cache_answers:
                fired += self._store([weekly_report.weekly_report(team, figures, now)], team, policy, None, now)
            self._known.add(id)
        return fired

    def _cuts(self, policy: Policy, now: float) -> list[Alert]:
        """Store and return the alert that context changes (such as leaving out old outputs) do not pay for a team."""
        with self._database.read() as connection:
            found = cuts.found(connection, policy, now)
        return self._store(found, policy.team, policy, None, now)

    def _quality(self, policies: Mapping[str, Policy], now: float) -> list[Alert]:
        """Store and return alerts about backends whose quality for a team is too low. Only backends with new judged
        answers are checked."""
        with self._database.read() as connection:
            newest = evidence.newest(connection)
            found = list(quality.found(connection, self._judged, now)) if newest != self._judged else []
        fired: list[Alert] = []
        for one in found:
            team = one.payload["team"]
            if (policy := policies.get(team)) is not None:
                fired += self._store([one], team, policy, None, now)
        self._judged = newest
        return fired

    def _slos(self, policies: Mapping[str, Policy], now: float) -> list[Alert]:
        """Store and return alerts about quality objectives that are burning or missed."""
        watched = {team: policy for team, policy in policies.items() if policy.slo.objective is not None}
        if watched:
            with self._database.read() as connection:
                self._objectives = tuple(objectives.of_teams(connection, watched, now))
        else:
            self._objectives = ()
        fired: list[Alert] = []
        for one in slo.found(self._objectives, now):
            fired += self._store([one], one.payload["team"], watched[one.payload["team"]], None, now)
        return fired

    def _check_budget(self, team: str, policy: Policy, budget: Budget, window: Window, now: float) -> list[Alert]:
        if not measure.shared(policy, budget):
            return self._check_each(team, policy, budget, window, now)
        account = BudgetWindow(team, budget)
        countable = budget.per == "team" and budget.limit_usd is not None
        spent = self._at_most(team, window) if countable else None
        if spent is None or self._may_be_due(account, spent, window, now):
            spent = self._sum(team, policy, budget, window, now, keep=countable)
        found = due(account, spent, window, now)
        if window[0] <= now < window[1]:
            self._note(account, spent, window)
            if "forecast" in budget.alerts and self._is_due(team, budget.model_dump_json(), FORECAST_EVERY_S, now):
                with self._database.read() as connection:
                    ahead = measure.ahead(connection, policy, account, spent, window, now)
                found += due_ahead(account, spent, ahead, window, now)
        return self._store(found, team, policy, budget, now)

    def _check_each(self, team: str, policy: Policy, budget: Budget, window: Window, now: float) -> list[Alert]:
        """Store and return the alerts about a budget in which each key, end user or session has its own amount. There
        is an alert for each key, but only one for all end users or sessions together."""
        with self._database.read() as connection:
            each = measure.used_by_each(connection, team, policy, budget, window)
        if window[0] <= now < window[1]:
            self._note(BudgetWindow(team, budget), each[0][1] if each else 0, window)
        found: list[Alert] = []
        if budget.per == "key":
            for key, spent in each:
                found += due(BudgetWindow(team, budget, key), spent, window, now)
        else:
            for threshold in (share for share in budget.alerts if share != "forecast"):
                one = BudgetWindow(team, budget.model_copy(update={"alerts": (threshold,)}))
                enough = least(one, threshold)
                if far := [name for name, spent in each if spent >= enough]:
                    found += due(replace(one, subjects=far), each[0][1], window, now)
        return self._store(found, team, policy, budget, now)

    def _anomalies(self, team: str, now: float) -> list[Alert]:
        current = int(now // hours.HOUR_S)
        until, past = self._past.get(team, (0, {}))
        with self._database.read() as connection:
            if until != current - 1:
                since = float((current - anomalies.PAST_HOURS) * hours.HOUR_S)
                past = hours.read(connection, team, since, float((current - 1) * hours.HOUR_S))
                self._past[team] = current - 1, past
            last = hours.read(connection, team, float((current - 1) * hours.HOUR_S), now + hours.HOUR_S)
        return anomalies.found(team, past | last, now)

    def _store(self, found: list[Alert], team: str, policy: Policy, budget: Budget | None, now: float) -> list[Alert]:
        """Store the alerts in `found` that are not stored yet, and return these alerts."""
        fresh = [alert for alert in found if alert.id not in self._known]
        if not fresh:
            return []
        receivers = [*policy.alerts.notify, *(budget.notify if budget else ())]
        reported = policy.alerts.weekly_report
        with self._database.begin() as connection:
            fired = [
                alert
                for alert in fresh
                if deliveries.write(
                    connection, alert, team, reported if alert.kind == "report" else receivers, policy.alerts, now
                )
            ]
        self._known.update(alert.id for alert in fresh)
        return fired

    def _is_due(self, team: str, what: str, every_s: float, now: float) -> bool:
        due_at = self._next_checks.get((team, what), -math.inf)
        if due_at - every_s <= now < due_at:  # if the clock was set back, do not wait longer than one interval
            return False
        self._next_checks[team, what] = now + every_s
        return True

    def _note(self, account: BudgetWindow, spent: int, window: Window) -> None:
        budget = account.budget
        limit = f"{budget.limit_usd.normalize():f}" if budget.limit_usd is not None else f"{budget.limit_tokens} tokens"
        label = budget.window if budget.per == "team" else f"{budget.window} per {budget.per.replace('_', ' ')}"
        self._used[account.team, label, limit] = (spent / account.limit, window[1])

    def _at_most(self, team: str, window: Window) -> int | None:
        """An upper limit of the team's spend in `window`: the result of the last query, plus the rows since then. None
        if it is unknown; then the ledger must be queried. It is known only with SQLite, where `notice` gets every row.
        """
        known = self._queried.get((team, window))
        return None if known is None else known[0] + self._noticed.get(team, 0) - known[1]

    def _may_be_due(self, account: BudgetWindow, at_most: int, window: Window, now: float) -> bool:
        """Return whether an alert that is not stored yet may be due. `at_most`: upper limit of the spend. The result
        of the last query is the lower limit.
        """
        return self._queried[account.team, window][0] < account.limit <= at_most or any(
            alert.id not in self._known for alert in due(account, at_most, window, now)
        )

    def _sum(self, team: str, policy: Policy, budget: Budget, window: Window, now: float, *, keep: bool) -> int:
        noticed = self._noticed.get(team, 0)
        with self._database.read() as connection:
            spent = measure.used(connection, team, policy, budget, window)
        if keep and self._database.sqlite and window[0] <= now < window[1]:
            self._queried = {known: sums for known, sums in self._queried.items() if now < known[1][1]}
            self._queried[team, window] = spent, noticed
        return spent


def _of_default(team: str, policies: Mapping[str, Policy]) -> Policy | None:
    """The policy for a team that has no policy of its own: the default policy without its receivers, because those
    belong to another team."""
    default = policies.get(DEFAULT)
    if default is None or team.startswith(OWNER):
        return None
    return Policy(team=team, context=default.context)
