"""The alert that the error budget of a quality objective is being used too fast, or is used up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.alerts.alert import Alert, alert
from gateway.domain.money.windows import iso
from gateway.domain.notify import Severity
from gateway.ledger.reports.objectives import ALL, Objective


def found(objectives: Iterable[Objective], now: float) -> Iterator[Alert]:
    """The alerts for all objectives that are burning or missed."""
    for one in objectives:
        if one.state in ("burning", "missed"):
            yield slo_alert(one, now)


def slo_alert(one: Objective, now: float) -> Alert:
    """Make the alert about one objective. The alert gets a new id if the state of the objective changes, and otherwise
    once per window length of the objective."""
    what = "all traffic" if one.traffic_class == ALL else f"class {one.traffic_class}"
    begun = (
        f"Team {one.team}, {what}: {one.quality or 0:.1%} of {one.judged:.0f} judged answers were as good as the "
        f"baseline's; the objective is {one.objective:.1%} over {one.window_s / 86400:g} days."
    )
    if one.state == "missed":
        text = f"{begun} The error budget is spent."
    else:
        text = f"{begun} The error budget is used {one.burn_rate or 0:.1f} times as fast as it lasts."
    facts = {**one.as_object(), "threshold": f"slo {one.state}", "at": iso(now), "text": text}
    severity: Severity = "critical" if one.state == "missed" else "warning"
    id = f"{one.team}/slo/{one.traffic_class}/{one.objective}/{one.state}/{now // one.window_s:.0f}"
    return alert(id, "slo", severity, one.team, facts)
