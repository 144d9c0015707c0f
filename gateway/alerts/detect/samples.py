"""Makes an example alert of each kind, for tests of receivers."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from gateway.admission.tool_loops import LoopReport
from gateway.alerts.alert import Alert, Kind, digest
from gateway.alerts.detect import lost_hosts
from gateway.alerts.detect.anomalies import ENOUGH_HOURS, LEAST_LOOKUPS, found
from gateway.alerts.detect.cuts import cuts_alert
from gateway.alerts.detect.hours import HOUR_S, Backend, Hour
from gateway.alerts.detect.quality import quality_alert
from gateway.alerts.detect.slo import slo_alert
from gateway.alerts.detect.thresholds import BudgetWindow, due, due_ahead
from gateway.alerts.detect.tool_loops import tool_loop_alert
from gateway.alerts.detect.weekly_report import Week, weekly_report
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import iso, window_bounds
from gateway.domain.routing.standing import Judged, standing
from gateway.domain.units import PICO_PER_USD
from gateway.ledger.reports.forecast import DAY_S, Forecast
from gateway.ledger.reports.holdout import Figure, Holdout
from gateway.ledger.reports.objectives import Objective
from gateway.ledger.reports.report import Line
from gateway.ledger.reports.savings import Statement
from gateway.state.leases.orphaned_holds import OrphanedHold


def sample(kind: Kind, team: str, now: float) -> Alert:
    """The example alert of `kind`. Its payload has `"test": true`, and its text says that the alert is a test."""
    if kind == "quality":
        alert = _quality(team, now)
    elif kind == "report":
        alert = _report(team, now)
    elif kind == "lost_host":
        alert = _lost_host(team, now)
    elif kind == "slo":
        alert = slo_alert(Objective(team, "en/text/opening", 0.97, 30 * DAY_S, 100.0, 4.0, 40.0, 8.0), now)
    elif kind == "context":
        figure = Figure("cost", 0.9, 1.1, -0.22, -0.3, -0.1, loses=True)
        alert = cuts_alert(Holdout(team, now, 40, 1960, (figure,)), now)
    elif kind == "tool_loop":
        alert = tool_loop_alert(LoopReport(team, "session", "claude_code", "Bash", 5, 10), now)
    else:
        alert = _budget(kind, team, now) if kind in ("threshold", "forecast") else _anomaly(kind, team, now)
    payload = {"test": True, **alert.payload, "text": f"This is a test, nothing happened: {alert.payload['text']}"}
    return replace(alert, id=f"test/{team}/{kind}/{digest(iso(now), 12)}", payload=payload)


def _budget(kind: Kind, team: str, now: float) -> Alert:
    account = BudgetWindow(team, Budget(limit_usd=Decimal(100), alerts=(1.0,)))
    window = window_bounds("month", "UTC", now)
    if kind == "threshold":
        return due(account, 100 * PICO_PER_USD, window, now)[0]
    totals = (90 * PICO_PER_USD, 110 * PICO_PER_USD, 130 * PICO_PER_USD)
    return due_ahead(account, 50 * PICO_PER_USD, Forecast(*totals, now, now, None), window, now)[0]


def _quality(team: str, now: float) -> Alert:
    """An example alert about a backend whose answers were all worse than the reference's."""
    return quality_alert(team, "backend", standing([Judged(number, 0.95, 0.95, 0.0) for number in range(20)]), now)


def _report(team: str, now: float) -> Alert:
    """An example weekly report with the cost of one model."""
    line = Line(("model",), requests=1000, cost_pico=20 * PICO_PER_USD)
    savings = Statement(team, "large-model", 1000, 50 * PICO_PER_USD, line.cost_pico)
    totals = (70 * PICO_PER_USD, 80 * PICO_PER_USD, 90 * PICO_PER_USD)
    ahead = Forecast(*totals, None, None, None)
    week = window_bounds("week", "UTC", now - 7 * DAY_S)
    return weekly_report(team, Week(week, line, [line], 25 * PICO_PER_USD, savings, 40 * PICO_PER_USD, ahead), now)


def _lost_host(team: str, now: float) -> Alert:
    """An example alert about a lost host with one worker, for which the team's monthly budget holds money."""
    start = int(window_bounds("month", "UTC", now)[0])
    counter = f"tg:{{{team}}}:lease:budget:team:usd:0:month:UTC:{start}"
    return lost_hosts.lost_host_alert(
        team, "host", [OrphanedHold("worker@host", counter, team, 12 * 10**9, 100 * 10**9, now)], now
    )


def _anomaly(kind: Kind, team: str, now: float) -> Alert:
    """An example alert of the anomaly `kind`, made from invented hourly figures. The last hour of these figures has
    all four kinds of anomaly.
    """
    current = int(now // HOUR_S)
    good = {"backend": Backend(PICO_PER_USD)}
    hours = {
        current - 2 - ago: Hour(PICO_PER_USD, LEAST_LOOKUPS, 2 * LEAST_LOOKUPS, good) for ago in range(ENOUGH_HOURS)
    }
    bad = {"backend": Backend(20 * PICO_PER_USD, free=3), "unpriced-backend": Backend(unpriced=3)}
    hours[current] = Hour(20 * PICO_PER_USD, 0, 2 * LEAST_LOOKUPS, bad)
    return next(alert for alert in found(team, hours, now) if alert.kind == kind)
