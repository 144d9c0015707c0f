"""Each budget's spend, limit and forecast as JSON values for reports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection

from gateway.alerts.detect import measure
from gateway.alerts.detect.thresholds import BudgetWindow, forecast_values
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import iso, window_bounds
from gateway.domain.policy import Policy
from gateway.ledger.reports.formats import dollars

MOST_SUBJECTS = 20
"""Maximum number of keys, end users or sessions that are listed for one budget. The highest spend comes first."""


def standings(
    connection: Connection, policies: Mapping[str, Policy], organisations: Mapping[str, tuple[Budget, ...]], now: float
) -> list[dict[str, Any]]:
    """The state of all budgets of the teams in `policies` and of their organisations, in the window that contains
    `now`. Amounts are whole tokens, or USD as decimal text. `forecast` is null if it is too early for a forecast."""
    found = [one for team, policy in policies.items() for one in _of_team(connection, team, policy, now)]
    members = {policy.organisation: (team, policy) for team, policy in policies.items()}
    for name, budgets in organisations.items():
        if name in members:
            team, policy = members[name]
            found += [
                {**_shared(connection, team, policy, budget, now), "team": None, "organisation": name}
                for budget in budgets
            ]
    return found


def _of_team(connection: Connection, team: str, policy: Policy, now: float) -> Iterator[dict[str, Any]]:
    for budget in policy.budget:
        if measure.shared(policy, budget):
            yield _shared(connection, team, policy, budget, now)
            continue
        window = window_bounds(budget.window, budget.timezone, now)
        for subject, spent in measure.used_by_each(connection, team, policy, budget, window)[:MOST_SUBJECTS]:
            yield {**_standing(BudgetWindow(team, budget, subject), policy, spent, window), "forecast": None}


def _shared(connection: Connection, team: str, policy: Policy, budget: Budget, now: float) -> dict[str, Any]:
    window = window_bounds(budget.window, budget.timezone, now)
    account = BudgetWindow(team, budget)
    spent = measure.used(connection, team, policy, budget, window)
    ahead = measure.ahead(connection, policy, account, spent, window, now)
    forecast = None if ahead is None else forecast_values(ahead, usd=budget.limit_usd is not None)
    return {**_standing(account, policy, spent, window), "forecast": forecast}


def _standing(account: BudgetWindow, policy: Policy, spent: int, window: tuple[float, float]) -> dict[str, Any]:
    budget, limit = account.budget, account.limit
    unit = "tokens" if budget.limit_usd is None else "usd"
    spent_, limit_, left = (amount if unit == "tokens" else dollars(amount) for amount in (spent, limit, limit - spent))
    return {
        "team": account.team,
        "organisation": policy.organisation,
        "budget": budget.title,
        "per": budget.per,
        "subject": account.subject or None,
        "window": budget.window,
        "start": None if math.isinf(window[1]) else iso(window[0]),
        "end": None if math.isinf(window[1]) else iso(window[1]),
        f"spent_{unit}": spent_,
        f"limit_{unit}": limit_,
        f"left_{unit}": left,
        "used": spent / limit,
        "hard": budget.hard,
        "on_exhausted": budget.on_exhausted,
    }
