"""Data for the page's budget charts: spend over time, limit, forecast."""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import Connection

from gateway.alerts.detect import measure
from gateway.alerts.detect.standing import standings
from gateway.alerts.detect.thresholds import BudgetWindow
from gateway.domain.money.windows import iso, window_bounds
from gateway.domain.policy import Budget, Policy
from gateway.ledger.reports.forecast import Point
from gateway.ledger.reports.formats import dollars

MOST_POINTS = 120
"""Maximum points of a chart. A small chart can show about this many."""


def of(connection: Connection, team: str, policy: Policy, now: float) -> list[dict[str, Any]]:
    """All budgets of `policy` with their charts. The field `standings` has the same form as in the usage report: if a
    budget applies to each key, end user or session, the field has one entry for each key, end user or session that
    spent something. Budgets of the organisation are omitted, because a team must not see the spend of other teams."""
    return [_budget(connection, team, policy, budget, now) for budget in policy.budget]


def _budget(connection: Connection, team: str, policy: Policy, budget: Budget, now: float) -> dict[str, Any]:
    window = start, end = window_bounds(budget.window, budget.timezone, now)
    alone = policy.model_copy(update={"budget": (budget,)})
    account = BudgetWindow(team, budget)
    usd, endless = budget.limit_usd is not None, math.isinf(end)
    course: list[Point] = []
    if not endless and measure.shared(policy, budget):
        course = cumulated(measure.points(connection, policy, account, window, now), window)
    return {
        "title": budget.title,
        "per": budget.per,
        "window": budget.window,
        "timezone": budget.timezone,
        "start": None if endless else iso(start),
        "end": None if endless else iso(end),
        "passed": None if endless else (now - start) / (end - start),
        "unit": "usd" if usd else "tokens",
        "limit": dollars(account.limit) if usd else str(account.limit),
        "hard": budget.hard,
        "on_exhausted": budget.on_exhausted,
        "alerts": [one if one == "forecast" else f"{one * 100:.4g}%" for one in budget.alerts],
        "standings": standings(connection, {team: alone}, {}, now),
        "course": [[iso(at), dollars(amount) if usd else str(amount)] for at, amount in course],
    }


def cumulated(points: list[Point], window: tuple[float, float]) -> list[Point]:
    """The cumulative spend over time in `window`, in at most about `MOST_POINTS` points. The last point has the whole
    spend."""
    start, end = window
    total, sums = 0, list[Point]()
    for at, amount in points:
        if start <= at < end:
            total += amount
            sums.append((at, total))
    stride = max(1, math.ceil(len(sums) / MOST_POINTS))
    return sums[::-1][::stride][::-1]
