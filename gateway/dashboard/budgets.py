"""Data for the budget charts of the page: spend over time, limit, forecast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from gateway.alerts.detect import measure
from gateway.alerts.detect.standing import standings
from gateway.alerts.detect.thresholds import BudgetWindow
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import iso, window_bounds
from gateway.domain.policy import Policy
from gateway.ledger.reports.forecast import Point
from gateway.ledger.reports.formats import dollars
from gateway.ledger.store.entries import entries

MOST_POINTS = 120
"""Maximum points of a chart. A small chart can show about this many."""
EARLY_SHARE, EARLY_CALLS = 0.05, 20
"""Before this share of a window has passed, or with fewer calls in it, nobody can say whether a budget will last."""


def of(connection: Connection, team: str, policy: Policy, now: float) -> list[dict[str, Any]]:
    """All budgets of `policy` with the data of their charts. The field `standings` has the same form as in the usage
    report: a budget that applies to each key, end user or session has one entry for each of them that spent
    something. Budgets of the organisation are omitted, because a team must not see the spend of other teams.
    """
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
        "standings": judged(connection, standings(connection, {team: alone}, {}, now), now),
        "course": [[iso(at), dollars(amount) if usd else str(amount)] for at, amount in course],
    }


def judged(connection: Connection, found: Sequence[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """Add the field `early` to each of the standings `found`: whether it is too early to say if the budget will
    last."""
    return [{**one, "early": _early(connection, one, now)} for one in found]


def _early(connection: Connection, one: dict[str, Any], now: float) -> bool:
    shared = one["subject"] is None
    if shared and one["forecast"] is None:
        return True
    start, end = (datetime.fromisoformat(one[side]).timestamp() if one[side] else None for side in ("start", "end"))
    if start is not None and end is not None and now - start < EARLY_SHARE * (end - start):
        return True
    c = entries.c
    since = [] if start is None else [c.at >= start]
    calls = select(c.attempts).where(c.team == one["team"], c.simulated.is_(False), *since).limit(EARLY_CALLS)
    return int(connection.scalar(select(func.sum(calls.subquery().c.attempts))) or 0) < EARLY_CALLS


def cumulated(points: list[Point], window: tuple[float, float]) -> list[Point]:
    """Add up the spend over time in `window`. Returns about `MOST_POINTS` points at most; the last one has the whole
    spend."""
    start, end = window
    total, sums = 0, list[Point]()
    for at, amount in points:
        if start <= at < end:
            total += amount
            sums.append((at, total))
    stride = max(1, math.ceil(len(sums) / MOST_POINTS))
    return sums[::-1][::stride][::-1]
