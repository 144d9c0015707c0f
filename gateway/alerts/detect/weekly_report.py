"""Makes weekly reports for teams: spend, savings, and the forecast of the month's spend."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from gateway.alerts.alert import Alert, alert
from gateway.alerts.detect.standing import standings
from gateway.alerts.detect.thresholds import money
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.money.windows import iso, window_bounds, zone_named
from gateway.domain.policy import Policy
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.forecast import Forecast, forecast
from gateway.ledger.reports.formats import dollars
from gateway.ledger.reports.points import spend_points
from gateway.ledger.reports.report import Line, read_usage
from gateway.ledger.reports.savings import Statement, priced_reference, statements
from gateway.ledger.store.entries import entries, spent, within
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Settings

log = logging.getLogger(__name__)

DELAY_S = 3600.0
"""Seconds from the end of a week to the week's report. By then, the rows of requests in progress are on the ledger."""
_DEAREST = 3

Window = tuple[float, float]
References = Callable[[Policy], tuple[Backend, Price] | None]
"""A function from a policy to (backend, price). This backend would have served all requests of the team without
routing. None: there is no such backend."""


@dataclass(frozen=True, slots=True)
class Week:
    """The figures of one weekly report."""

    window: Window
    total: Line
    dearest: Sequence[Line]
    """The most expensive models, the highest cost first."""
    before_pico: int
    """Cost of the week before."""
    savings: Statement | None
    month_pico: int
    """Cost of the current month so far."""
    ahead: Forecast | None
    """Forecast of the current month's spend; None if it is too early for a forecast."""
    budgets: Sequence[dict[str, Any]] = ()
    timezone: str = "UTC"


def references(settings: Settings) -> References:
    """Make a function that returns the reference backend of a policy, chosen from gateway.yaml. The function loads the
    prices at each call."""

    def reference_of(policy: Policy) -> tuple[Backend, Price] | None:
        try:
            return priced_reference(policy, settings.config.backends or (), PriceBook.of(settings))
        except ConfigError as error:
            log.warning("the weekly report of team %s has no savings: %s", policy.team, error)
            return None

    return reference_of


def last_week(now: float, timezone: str) -> Window | None:
    """The begin and end of the last calendar week of a time zone, in Unix seconds; None if its report is not due
    yet."""
    start, _ = window_bounds("week", timezone, now)
    return None if now < start + DELAY_S else window_bounds("week", timezone, start - 1)


def report_id(team: str, week: Window) -> str:
    return f"{team}/weekly report/{iso(week[0])}"


def read(connection: Connection, policy: Policy, week: Window, reference_of: References, now: float) -> Week:
    """Read the figures in `week` of the team to which the policy belongs."""
    team, (since, until) = policy.team, week
    (report,) = read_usage(connection, [("model",)], team=team, since=since, until=until)
    before, _ = window_bounds("week", policy.timezone, since - 1)
    month = window_bounds("month", policy.timezone, now)
    so_far = spent(connection, *within(month[0], None, team))
    known = spend_points(connection, entries.c.team == team, month, now)
    return Week(
        week,
        report.total,
        sorted(report.rows, key=lambda line: -line.cost_pico)[:_DEAREST],
        spent(connection, *within(before, since, team)),
        next(iter(statements(connection, {team: reference_of(policy)}, since=since, until=until)), None),
        so_far,
        forecast(known, month, now, spent=so_far),
        standings(connection, {team: policy}, {}, now),
        policy.timezone,
    )


def weekly_report(team: str, week: Week, now: float) -> Alert:
    """The weekly report of a team, as an alert. Only the receivers of weekly reports get it."""
    saved = None if week.savings is None else week.savings.saved_pico
    ahead = week.ahead
    facts = {
        "week_start": iso(week.window[0]),
        "week_end": iso(week.window[1]),
        "requests": week.total.requests,
        "spent_usd": dollars(week.total.cost_pico),
        "spent_before_usd": dollars(week.before_pico),
        "unpriced": week.total.unpriced,
        "models": {line.group[0]: dollars(line.cost_pico) for line in week.dearest},
        "saved_usd": None if saved is None else dollars(saved),
        "month_usd": dollars(week.month_pico),
        "month_forecast_usd": None if ahead is None else dollars(ahead.total or 0),
        "month_forecast_usd_low": None if ahead is None else dollars(ahead.total_low or 0),
        "month_forecast_usd_high": None if ahead is None else dollars(ahead.total_high or 0),
        "budgets": [{name: one[name] for name in ("budget", "subject", "used")} for one in week.budgets],
        "at": iso(now),
        "text": " ".join([_spent(team, week), *_unpriced(week), *_saved(week), _month(week), *_budgets(week)]),
    }
    return alert(report_id(team, week.window), "report", "info", team, facts)


def _spent(team: str, week: Week) -> str:
    zone = zone_named(week.timezone)
    first, last = (datetime.fromtimestamp(at, zone).date() for at in (week.window[0], week.window[1] - 1))
    spent, before = money(week.total.cost_pico), money(week.before_pico)
    text = f"Team {team} spent {spent} USD on {week.total.requests:,} requests from {first} to {last}"
    text += f" (week before: {before} USD)."
    models = ", ".join(f"{line.group[0]} {money(line.cost_pico)} USD" for line in week.dearest if line.cost_pico)
    return f"{text} Highest: {models}." if models else text


def _unpriced(week: Week) -> list[str]:
    return [f"Not included: {week.total.unpriced:,} attempts of unknown price."] if week.total.unpriced else []


def _saved(week: Week) -> list[str]:
    one = week.savings
    if one is None or one.baseline_pico is None or one.saved_pico is None:
        return []
    return [f"With {one.reference} for everything: {money(one.baseline_pico)} USD; saved: {money(one.saved_pico)} USD."]


def _month(week: Week) -> str:
    text = f"This month so far: {money(week.month_pico)} USD"
    if week.ahead is None:
        return f"{text}; it is too early for a forecast."
    low, middle, high = (money(each or 0) for each in (week.ahead.total_low, week.ahead.total, week.ahead.total_high))
    return f"{text}; forecast: {middle} USD ({low} to {high}, four times in five)."


def _budgets(week: Week) -> list[str]:
    shown = [f"{one['budget']} {one['used']:.0%}" for one in week.budgets if one["subject"] is None]
    return [f"Budgets used: {', '.join(shown)}."] if shown else []
