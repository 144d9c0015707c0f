"""Sums the spend of a budget from the ledger. A shared budget has one sum; other budgets have a sum for each key, end
user or session."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, literal, select

from gateway.alerts.detect.thresholds import BudgetWindow
from gateway.domain.money.budget import Budget
from gateway.domain.policy import Policy
from gateway.ledger.reports.forecast import Forecast, Point, forecast
from gateway.ledger.reports.points import spend_points
from gateway.ledger.rows import TOKENS
from gateway.ledger.store.entries import entries
from gateway.ledger.store.sums import pico_sum, whole

_SUBJECT = {"key": "key_id", "end_user": "end_user", "session": "session"}


def shared(policy: Policy, budget: Budget) -> bool:
    """Return whether a whole team or organisation shares one amount. Otherwise each key, end user or session has its
    own amount."""
    return budget.per not in _SUBJECT


def used(connection: Connection, team: str, policy: Policy, budget: Budget, window: tuple[float, float]) -> int:
    """The spend in `window`, in pico-dollars if the budget is in USD, otherwise in tokens."""
    high, low = connection.execute(select(*pico_sum(_amount(budget))).where(_which(team, policy, budget, window))).one()
    return whole(high, low)


def used_by_each(
    connection: Connection, team: str, policy: Policy, budget: Budget, window: tuple[float, float]
) -> list[tuple[str, int]]:
    """The spend in `window`, by key id, end user's pseudonym or session, in pico-dollars or tokens. The highest spend
    comes first."""
    subject = entries.c[_SUBJECT[budget.per]]
    query = select(subject, *pico_sum(_amount(budget))).where(_which(team, policy, budget, window), subject != "")
    found = connection.execute(query.group_by(subject)).all()
    return sorted(((name, whole(high, low)) for name, high, low in found), key=lambda each: (-each[1], each[0]))


def ahead(
    connection: Connection, policy: Policy, account: BudgetWindow, spent: int, window: tuple[float, float], now: float
) -> Forecast | None:
    """Forecast the spend of a shared budget in `window`; None if it is too early for a forecast."""
    known = points(connection, policy, account, window, now)
    return forecast(known, window, now, limit=account.limit, spent=spent)


def points(
    connection: Connection, policy: Policy, account: BudgetWindow, window: tuple[float, float], now: float
) -> list[Point]:
    """The points from which the spend of a shared budget is forecast, as far back as a forecast of `window` needs."""
    budget = account.budget
    return spend_points(connection, _whose(account.team, policy, budget), window, now, _amount(budget))


def _whose(team: str, policy: Policy, budget: Budget) -> ColumnElement[bool]:
    c = entries.c
    return c.organisation == policy.organisation if budget.per == "organisation" else c.team == team


def _which(team: str, policy: Policy, budget: Budget, window: tuple[float, float]) -> ColumnElement[bool]:
    start, end = window
    c = entries.c
    ends = [c.at < end] if end != float("inf") else []
    return and_(_whose(team, policy, budget), c.simulated.is_(False), c.at >= start, *ends)


def _amount(budget: Budget) -> ColumnElement[Any]:
    """The SQL expression for a row's amount. If the budget is in USD, this is the cost. If the budget is in tokens, it
    is the number of all tokens, or 0 for a row with cost 0."""
    c = entries.c
    if budget.limit_usd is not None:
        return c.cost_pico
    return case((c.cost_pico == 0, 0), else_=sum((c[name] for name in TOKENS), start=literal(0)))
