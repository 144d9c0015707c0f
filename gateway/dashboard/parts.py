"""Computes the parts of the page's figures. Each view of the page requests the parts that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import Connection

from gateway.alerts.detect.standing import standings
from gateway.cache.quality import counters
from gateway.dashboard import budgets, cube, mix, queries
from gateway.dashboard.days import Day
from gateway.dashboard.periods import Period
from gateway.domain.backend import Backend
from gateway.domain.policy import Policy
from gateway.domain.protocols import PriceList
from gateway.ledger.reports import objectives, savings
from gateway.ledger.reports.formats import as_object, dollars, simulated_values
from gateway.ledger.reports.report import Line, SimulatedCall, read_usage, simulated_usage, teams
from gateway.policy.load import PolicySet

DEAREST = 10
ALERTS = 100
MARK, INVENTED_ORGANISATION = "demo-", "demo"
"""The beginning of the names of all teams in the demo history, and the organisation in their policies."""


class Prices(SimulatedCall, PriceList, Protocol):
    """The price list. For simulated backends, it also has the prices that they would have if they were real."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Selects the ledger entries to read: those of `team` in `period`. `team`: empty for the entries of all teams."""

    team: str
    period: Period
    policies: PolicySet
    prices: Prices
    backends: Sequence[Backend]
    errors: Mapping[str, Mapping[str, Any]]
    """Team → wrong hits of its semantic cache, as `thriftgate cache stats` shows them: since the cache was started."""
    computed: list[Day] = field(default_factory=list)
    """Whole days whose figures had to be computed, because they were not stored."""

    @property
    def policy(self) -> Policy:
        return self.policies.find(self.team)[0]

    def invented(self, team: str) -> bool:
        return invented(self.policies, team)


Read = Callable[[Connection, Scope], dict[str, Any]]


def invented(policies: PolicySet, team: str) -> bool:
    """Return whether the requests of `team` were invented by `thriftgate dev history`."""
    return team.startswith(MARK) and policies.find(team)[0].organisation == INVENTED_ORGANISATION


def spend(connection: Connection, scope: Scope) -> dict[str, Any]:
    """The totals; spend by day, backend, model and key; and the spend of each day by model."""
    period = scope.period
    groups = cube.read(connection, period, scope.team, computed=scope.computed)
    step = cube.days_of(period, groups)
    days = cube.lines(groups, step)
    by: dict[str, Any] = {
        "day": cube.rows("day", days),
        "backend": cube.rows("backend", cube.lines(groups, lambda one: one.backend)),
        "model": cube.rows("model", cube.lines(groups, lambda one: one.model)),
        "key": cube.rows("key", cube.lines(groups, lambda one: one.key)),
    }
    if period.days <= cube.HOURLY_DAYS:
        by["hour"] = cube.rows("hour", cube.lines(groups, cube.hour_of))
        step = cube.hour_of
    return {
        "currency": "USD",
        "total": cube.as_values(cube.total(days.values())),
        "by": by,
        "stack": cube.stack(groups, step, lambda one: one.model),
        "pace": cube.pace(groups, period),
        "invented": scope.invented(scope.team),
    }


def tags(connection: Connection, scope: Scope) -> dict[str, Any]:
    period = scope.period
    (report,) = read_usage(connection, [("tag",)], team=scope.team, since=period.since, until=period.until)
    return {"tags": as_object(report)["rows"]}


def simulated(connection: Connection, scope: Scope) -> dict[str, Any]:
    """The traffic of simulated backends, which is not included in any total."""
    period = scope.period
    found = simulated_usage(connection, team=scope.team, since=period.since, until=period.until, prices=scope.prices)
    return {"simulated": [simulated_values(line) for line in found]}


def budget(connection: Connection, scope: Scope) -> dict[str, Any]:
    return {"budgets": budgets.of(connection, scope.team, scope.policy, scope.period.now)}


def saved(connection: Connection, scope: Scope) -> dict[str, Any]:
    """The savings of a team. The figures are those of `thriftgate savings`."""
    return {"savings": _savings(connection, scope, [scope.team])}


def _savings(connection: Connection, scope: Scope, names: Sequence[str]) -> dict[str, Any]:
    references = {
        name: savings.priced_reference(scope.policies.find(name)[0], scope.backends, scope.prices) for name in names
    }
    period = scope.period
    found = savings.statements(connection, references, since=period.since, until=period.until)
    beside = queries.beside_savings(connection, period.since, period.until, scope.team or None)
    values = savings.as_object(found)
    for one, statement in zip(values["teams"], found, strict=True):
        cached, idle = beside.get(statement.team, (0, 0))
        net = None if statement.saved_pico is None else dollars(statement.saved_pico - idle)
        one |= {"by_cache_usd": dollars(cached), "idle_usd": dollars(idle), "net_saved_usd": net}
    idle = sum(each for _, each in beside.values())
    known = sum(one.saved_pico for one in found if one.saved_pico is not None)
    values["total"]["net_saved_usd"] = dollars(known - idle)
    return values


def answers(connection: Connection, scope: Scope) -> dict[str, Any]:
    """Answers by tier, by difficulty, and by kind of cache hit."""
    cells = mix.cells(connection, scope.team, scope.period.since, scope.period.until)
    return {
        "tiers": mix.tiers(cells),
        "difficulty": mix.difficulty(cells),
        "cache": mix.cache(cells),
        "cache_classes": mix.cache_classes(cells),
        "measured_classes": scope.errors.get(scope.team, {}).get("kinds", {}),
    }


def quality(connection: Connection, scope: Scope) -> dict[str, Any]:
    """The quality objectives of the team's policy (`slo`), as of now; the period does not matter."""
    found = objectives.read(connection, scope.policy, scope.period.now)
    return {"objectives": [one.as_object() for one in found]}


def wrong_hits(connection: Connection, scope: Scope) -> dict[str, Any]:
    """The rate of wrong semantic cache hits, measured on the team's own look-ups, and the limit in its policy. The rate
    is None if the team had no semantic look-up."""
    period = scope.period
    counts = counters.read(connection, team=scope.team, since=period.since, until=period.until).get(scope.team)
    return {
        "wrong_hits": None if counts is None else counts.as_object(),
        "max_error": scope.policy.cache.semantic.max_error,
    }


def latency(connection: Connection, scope: Scope) -> dict[str, Any]:
    single = queries.raw(scope.team, scope.period.since, scope.period.until)
    return {"latency": queries.latency(connection, single)}


def dearest(connection: Connection, scope: Scope) -> dict[str, Any]:
    single = queries.raw(scope.team, scope.period.since, scope.period.until)
    return {"dearest": queries.dearest(connection, single, DEAREST)}


def alerts(connection: Connection, scope: Scope) -> dict[str, Any]:
    """The latest alerts, and the number of those that were not acknowledged."""
    return {
        "alerts": queries.latest_alerts(connection, scope.team, ALERTS, scope.period.now),
        "open_alerts": queries.open_alerts(connection, scope.period.now).get(scope.team, 0),
    }


def all_teams(connection: Connection, scope: Scope) -> dict[str, Any]:
    """The table of all teams: a row for each team with spend, expected spend, errors and open alerts. The result
    also has the spend of each day by team.
    """
    period = scope.period
    groups = cube.read(connection, period, None, by_team=True, computed=scope.computed)
    waiting = queries.open_alerts(connection, period.now)
    by_team: dict[str, list[cube.Group]] = {name: [] for name in waiting}
    for group in groups:
        by_team.setdefault(group.team, []).append(group)
    sums = cube.lines(groups, lambda one: one.team)
    rows = [
        {
            "team": team,
            **cube.as_values(sums.get(team, Line())),
            "pace": cube.pace(its, period, by_team=True),
            "open_alerts": waiting.get(team, 0),
        }
        for team, its in sorted(by_team.items())
    ]
    return {
        "total": cube.as_values(cube.total(sums.values())),
        "teams": rows,
        "pace": cube.pace(groups, period, by_team=True),
        "open_alerts": sum(waiting.values()),
        "invented": any(map(scope.invented, by_team)),
        "stack": cube.stack(groups, cube.days_of(period, groups, by_team=True), lambda one: one.team),
    }


def team_savings(connection: Connection, scope: Scope) -> dict[str, Any]:
    names = teams(connection, since=scope.period.since, until=scope.period.until)
    return {"team_savings": _savings(connection, scope, names)}


def team_budgets(connection: Connection, scope: Scope) -> dict[str, Any]:
    """The standings of the budgets of each team that has budgets. If a budget applies to each key, end user or session,
    only the standing with the highest spend is included."""
    policies: Mapping[str, Policy] = {team: policy for team, policy in scope.policies.policies.items() if policy.budget}
    first: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for one in standings(connection, policies, {}, scope.period.now):
        first.setdefault((one["team"], one["budget"], one["per"], one["window"]), one)
    found: dict[str, list[dict[str, Any]]] = {}
    for one in budgets.judged(connection, list(first.values()), scope.period.now):
        found.setdefault(one["team"], []).append(one)
    return {"team_budgets": found}


PARTS: Mapping[str, Read] = {
    "spend": spend,
    "budgets": budget,
    "alerts": alerts,
    "wrong_hits": wrong_hits,
    "savings": saved,
    "answers": answers,
    "quality": quality,
    "latency": latency,
    "dearest": dearest,
    "tags": tags,
    "simulated": simulated,
}
"""The parts of one team's figures. The part `feedback` is read separately."""
FEEDBACK = "feedback"
ALL_TEAMS: Mapping[str, Read] = {"teams": all_teams, "savings": team_savings, "budgets": team_budgets}
"""The parts of the figures of all teams, for admin keys."""
