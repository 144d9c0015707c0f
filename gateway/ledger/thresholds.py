"""When a budget's alerts are due and what they say: pure decisions on integers."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from gateway.domain.policy import Budget
from gateway.domain.units import pico_to_usd, usd_to_pico
from gateway.domain.windows import iso

FORECAST_AFTER = 0.1
"""Share of a window that must have passed before its pace says anything."""

_ADJECTIVES = {"hour": "hourly", "day": "daily", "week": "weekly", "month": "monthly", "total": "total"}


@dataclass(frozen=True, slots=True)
class Alert:
    """One threshold crossed in one window of one budget."""

    id: str
    """The same for every process that notices, whenever it does."""
    payload: dict[str, Any]

    def addressed(self, target: str) -> str:
        """The id of its copy for one receiver."""
        return f"{self.id}/{_digest(target, 8)}" if target else self.id


def due(team: str, budget: Budget, spent_pico: int, window: tuple[float, float], now: float) -> list[Alert]:
    """The alerts that `spent_pico` in `window` calls for; most of them will have been sent before."""
    limit = usd_to_pico(budget.limit_usd)
    alerts = []
    for threshold in budget.alerts:
        if threshold == "forecast":
            ahead = forecast_pico(spent_pico, window, now)
            if ahead is not None and spent_pico < limit < ahead:
                alerts.append(_alert(team, budget, window, "forecast", spent_pico, now, ahead))
        elif spent_pico > 0 and spent_pico >= Decimal(str(threshold)) * limit:
            alerts.append(_alert(team, budget, window, f"{Decimal(str(threshold)) * 100:f}", spent_pico, now))
    return alerts


def forecast_pico(spent_pico: int, window: tuple[float, float], now: float) -> int | None:
    """What will be spent at the window's end if it goes on like this; None when it is too early or has no end."""
    start, end = window
    passed = (now - start) / (end - start) if math.isfinite(end) else 0.0
    if not FORECAST_AFTER <= passed < 1.0:
        return None
    return int(spent_pico / Decimal(str(passed)))


def _alert(
    team: str, budget: Budget, window: tuple[float, float], threshold: str, spent: int, now: float, ahead: int = 0
) -> Alert:
    share = threshold if threshold == "forecast" else f"{_short(threshold)}%"
    # A budget that changed is another budget: its thresholds may fire again.
    budget_id = _digest(f"{budget.window} {budget.timezone} {budget.limit_usd.normalize():f}", 12)
    start, end = window
    payload: dict[str, Any] = {
        "team": team,
        "budget": f"{_ADJECTIVES[budget.window]} budget of {_short(f'{budget.limit_usd:f}')} USD",
        "window": budget.window,
        "window_start": iso(start),
        "window_end": iso(end) if math.isfinite(end) else None,
        "threshold": share,
        "spent_usd": _short(f"{pico_to_usd(spent):f}"),
        "limit_usd": _short(f"{budget.limit_usd:f}"),
        "at": iso(now),
        "text": _text(team, budget, window, share, spent, ahead),
    }
    return Alert(f"{team}/{budget.window}/{iso(start)}/{share}/{budget_id}", payload)


def _text(team: str, budget: Budget, window: tuple[float, float], share: str, spent: int, ahead: int) -> str:
    name = f"{_ADJECTIVES[budget.window]} budget of {_short(f'{budget.limit_usd:f}')} USD"
    until = f", which runs until {_day(window[1], budget.timezone)}" if math.isfinite(window[1]) else ""
    if share == "forecast":
        return (
            f"Team {team} has spent {_money(spent)} USD of its {name}{until}; "
            f"at this pace it will have spent {_money(ahead)} USD by then."
        )
    if spent >= usd_to_pico(budget.limit_usd):
        effect = {
            "refuse": "Requests that cost money are refused",
            "downgrade": "Only answers that cost nothing are served",
        }[budget.on_exhausted]
        return f"Team {team} has used up its {name}: {_money(spent)} USD are spent. {effect}{_until(window, budget)}."
    return f"Team {team} has spent {_money(spent)} USD, {share} or more of its {name}{until}."


def _until(window: tuple[float, float], budget: Budget) -> str:
    return f" until {_day(window[1], budget.timezone)}" if math.isfinite(window[1]) else " until the limit is raised"


def _day(at: float, timezone: str) -> str:
    return f"{datetime.fromtimestamp(at, ZoneInfo(timezone)):%Y-%m-%d %H:%M} ({timezone})"


def _money(pico: int) -> str:
    """Cents; of less than a dollar, as many places as it takes."""
    usd = pico_to_usd(pico)
    return f"{usd:.2f}" if usd >= 1 else _short(f"{usd:f}")


def _short(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
