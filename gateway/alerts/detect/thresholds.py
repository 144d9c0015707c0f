"""Decides which alerts of a budget are due, and writes their texts. Amounts are integers (pico-dollars or tokens).
Works without I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from gateway.alerts.alert import Alert, Kind, alert, digest
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import iso, zone_named
from gateway.domain.notify import Severity
from gateway.domain.units import cents, pico_to_usd, usd_to_pico
from gateway.ledger.reports.forecast import Forecast

WARNING, CRITICAL = Decimal("0.8"), Decimal(1)
"""From these shares of the limit on, the severity of an alert is `warning` or `critical`. Below, it is `info`."""

_ADJECTIVES = {"hour": "hourly", "day": "daily", "week": "weekly", "month": "monthly", "total": "total"}
_MOST_NAMED = 5
_EFFECTS = {
    "refuse": "Requests that cost money are refused",
    "downgrade": "Only answers that cost nothing are served",
    "finish": "Answers in progress are finished, then only those that cost nothing are served",
    "truncate": "Answers in progress are cut off, then only those that cost nothing are served",
}


@dataclass(frozen=True, slots=True)
class BudgetWindow:
    """A budget in one window, or one key's part of the budget. Alerts are sent about it. `subject`: the id of the key;
    empty for the whole budget."""

    team: str
    budget: Budget
    subject: str = ""
    subjects: Sequence[str] = ()
    """End users or sessions that have reached a threshold, the highest spend first. One alert names them all, because
    there may be thousands."""

    @property
    def limit(self) -> int:
        """The limit in pico-dollars or tokens."""
        budget = self.budget
        return usd_to_pico(budget.limit_usd) if budget.limit_usd is not None else budget.limit_tokens or 1

    @property
    def whose(self) -> str:
        if self.subject:
            return f"Key {self.subject} of team {self.team}"
        if self.subjects:
            named = ", ".join(self.subjects[:_MOST_NAMED])
            more = f" and {len(self.subjects) - _MOST_NAMED} more" if len(self.subjects) > _MOST_NAMED else ""
            kind = self.budget.per.replace("_", " ")
            return f"Of team {self.team} {'each of ' if len(self.subjects) > 1 else ''}{kind} {named}{more}"
        return f"Team {self.team}" if self.budget.per == "team" else f"{self.team[:1].upper()}{self.team[1:]}"

    def amount(self, units: int) -> str:
        if self.budget.limit_usd is None:
            return f"{units} tokens"
        return f"{money(units)} USD"

    @property
    def name(self) -> str:
        """The budget's name, such as `monthly budget of 500 USD`."""
        budget = self.budget
        limit = f"{budget.limit_tokens} tokens" if budget.limit_usd is None else f"{_plain(budget.limit_usd)} USD"
        each = {"key": " per key", "end_user": " per end user", "session": " per session"}.get(budget.per, "")
        return f"{_ADJECTIVES[budget.window]} budget{f' {budget.name!r}' if budget.name else ''} of {limit}{each}"


def least(account: BudgetWindow, threshold: float) -> int:
    """The spend, in pico-dollars or tokens, at which `threshold` is reached. `threshold`: a share of the limit."""
    return max(math.ceil(Decimal(str(threshold)) * account.limit), 1)


def due(account: BudgetWindow, spent: int, window: tuple[float, float], now: float) -> list[Alert]:
    """The alerts for all thresholds that the spend `spent` in `window` has reached, whether they were reported before
    or not."""
    reached = []
    for threshold in account.budget.alerts:
        if threshold != "forecast" and spent >= least(account, threshold):
            share = Decimal(str(threshold))
            severity: Severity = "critical" if share >= CRITICAL else "warning" if share >= WARNING else "info"
            text = _reached(account, window, f"{_plain(share * 100)}%", spent)
            reached.append(_alert(account, window, f"{_plain(share * 100)}%", severity, spent, now, text))
    return reached


def due_ahead(
    account: BudgetWindow, spent: int, ahead: Forecast | None, window: tuple[float, float], now: float
) -> list[Alert]:
    """A list with the alert that the limit will be exceeded before the window ends. The list is empty if `ahead` does
    not forecast this, or if the limit is already reached.
    """
    if ahead is None or ahead.exhausted_at is None or spent >= account.limit:
        return []
    zone = account.budget.timezone
    latest = f"{_day(ahead.exhausted_at_high, zone)}" if ahead.exhausted_at_high else "not before its end"
    text = (
        f"{account.whose} has spent {account.amount(spent)} of its {account.name}"
        f"{_runs_until(window, account.budget)}; at this pace it is used up by {_day(ahead.exhausted_at, zone)} "
        f"(between {_day(ahead.exhausted_at_low or ahead.exhausted_at, zone)} and {latest}, four times in five)"
    )
    if ahead.total_low is not None and ahead.total is not None and ahead.total_high is not None:
        between = f"{account.amount(ahead.total_low)} and {account.amount(ahead.total_high)}"
        text += f", and {account.amount(ahead.total)} would be spent at the window's end (between {between})"
    found = _alert(account, window, "forecast", "warning", spent, now, text + ".")
    found.payload["forecast"] = forecast_values(ahead, usd=account.budget.limit_usd is not None)
    return [found]


def forecast_values(ahead: Forecast, *, usd: bool) -> dict[str, Any]:
    """A forecast as JSON values. Times are in ISO 8601. Amounts are exact decimal text in USD if `usd` is true,
    otherwise numbers of tokens."""
    unit = "usd" if usd else "tokens"

    def amount(units: int | None) -> Any:
        return units if units is None or not usd else _plain(pico_to_usd(units))

    def moment(at: float | None) -> str | None:
        return None if at is None else iso(at)

    return {
        f"total_{unit}_low": amount(ahead.total_low),
        f"total_{unit}": amount(ahead.total),
        f"total_{unit}_high": amount(ahead.total_high),
        "exhausted_at_low": moment(ahead.exhausted_at_low),
        "exhausted_at": moment(ahead.exhausted_at),
        "exhausted_at_high": moment(ahead.exhausted_at_high),
    }


def _alert(
    account: BudgetWindow,
    window: tuple[float, float],
    threshold: str,
    severity: Severity,
    spent: int,
    now: float,
    text: str,
) -> Alert:
    budget = account.budget
    start, end = window
    facts: dict[str, Any] = {
        "budget": account.name,
        "window": budget.window,
        "window_start": iso(start),
        "window_end": iso(end) if math.isfinite(end) else None,
        "threshold": threshold,
        **_amounts(account, spent),
        "at": iso(now),
        "text": text,
    }
    if account.subject:
        facts["key"] = account.subject
    if account.subjects:
        facts[f"{budget.per}s"] = list(account.subjects[:_MOST_NAMED])
    kind: Kind = "forecast" if threshold == "forecast" else "threshold"
    return alert(_id(account, start, threshold), kind, severity, account.team, facts)


def _id(account: BudgetWindow, start: float, threshold: str) -> str:
    """The alert's id. The budget's settings are part of the id, so after a change of the budget its thresholds are
    reported again."""
    budget = account.budget
    limit = f"{budget.limit_tokens} tokens" if budget.limit_usd is None else _plain(budget.limit_usd)
    parts = [budget.window, budget.timezone, limit]
    if budget.per != "team" or budget.name:
        parts += [budget.per, budget.name, account.subject]
    return f"{account.team}/{budget.window}/{iso(start)}/{threshold}/{digest(' '.join(parts), 12)}"


def _amounts(account: BudgetWindow, spent: int) -> dict[str, Any]:
    if account.budget.limit_usd is None:
        return {"spent_tokens": spent, "limit_tokens": account.limit}
    return {"spent_usd": _plain(pico_to_usd(spent)), "limit_usd": _plain(account.budget.limit_usd)}


def _reached(account: BudgetWindow, window: tuple[float, float], share: str, spent: int) -> str:
    until = _runs_until(window, account.budget)
    if spent < account.limit:
        return f"{account.whose} has spent {account.amount(spent)}, {share} or more of its {account.name}{until}."
    effect = _EFFECTS[account.budget.on_exhausted] if account.budget.hard else "The limit is not enforced"
    used_up = f"{account.whose} has used up its {account.name}: {account.amount(spent)} are spent."
    return f"{used_up} {effect}{_until(window, account.budget)}."


def _runs_until(window: tuple[float, float], budget: Budget) -> str:
    return f", which runs until {_day(window[1], budget.timezone)}" if math.isfinite(window[1]) else ""


def _until(window: tuple[float, float], budget: Budget) -> str:
    if not budget.hard:
        return ""
    return f" until {_day(window[1], budget.timezone)}" if math.isfinite(window[1]) else " until the limit is raised"


def _day(at: float, timezone: str) -> str:
    return f"{datetime.fromtimestamp(at, zone_named(timezone)):%Y-%m-%d %H:%M} ({timezone})"


def money(pico: int) -> str:
    """Format pico-dollars as USD with two decimals; amounts below one dollar get three significant digits."""
    usd = pico_to_usd(pico)
    return f"{usd:.2f}" if usd >= 1 else cents(pico)


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
