"""The alert that a backend's measured quality is below the quality that routing aims at."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from gateway.alerts.alert import Alert, alert
from gateway.domain.money.windows import iso
from gateway.domain.routing.standing import Standing, standing
from gateway.ledger.store import evidence


def found(connection: Connection, after: tuple[int, int], now: float) -> Iterator[Alert]:
    """Yield an alert about each backend whose quality for a team is too low. Only teams with new judged answers are
    checked. `after`: the result of `evidence.newest` at the last call."""
    since = now - evidence.WINDOW_S
    for team, backend in sorted(evidence.judged_pairs(connection, after, since)):
        rows = evidence.read(connection, team, backend, since)
        if rows and (measured := standing(rows)).below:
            yield quality_alert(team, backend, measured, now)


def quality_alert(team: str, backend: str, measured: Standing, now: float) -> Alert:
    """Make the alert about one backend and team. The alert's id stays the same while the quality stays too low."""
    text = (
        f"Answers of {backend} to team {team} are as good as the baseline's {measured.mean:.0%} of the time (one-sided "
        f"95 % bounds {measured.low:.0%} and {measured.high:.0%}); {measured.target:.0%} was promised. Routing uses it "
        "less, or not at all, until comparisons show that its quality has recovered."
    )
    facts = {
        "backend": backend,
        "measured": round(measured.mean, 4),
        "low": round(measured.low, 4),
        "high": round(measured.high, 4),
        "target": round(measured.target, 4),
        "judged": measured.judged,
        "threshold": "quality",
        "at": iso(now),
        "text": text,
    }
    return alert(f"{team}/quality/{backend}/{measured.alarm}"[:160], "quality", "warning", team, facts)
