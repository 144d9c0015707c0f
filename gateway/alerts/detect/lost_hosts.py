"""The alert that a host has stopped reporting while budgets still hold money for its calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gateway.alerts.alert import Alert, alert
from gateway.domain.money.windows import iso
from gateway.domain.notify import Severity
from gateway.state.leases.orphaned_holds import OrphanedHold

AFTER_S = 30.0
"""Seconds after which a dead worker's host counts as lost. The host needs no alert if its gateway restarts earlier,
because the gateway then drains the host's journals."""
_CRITICAL_SHARE = 0.1
"""If a lost host's hold is at least this share of a budget's limit, the alert is critical."""
_NAMED = 5


def found(holds: Iterable[OrphanedHold], now: float) -> Iterator[tuple[str, Alert]]:
    """Yield (owner, alert) for each lost host and each owner whose budgets hold money for calls of this host.
    `owner`: a team or `organisation NAME`.
    """
    groups: dict[tuple[str, str], list[OrphanedHold]] = {}
    for one in holds:
        groups.setdefault((one.team or one.tag, one.host), []).append(one)
    for (team, host), held in groups.items():
        if now - min(one.since for one in held) >= AFTER_S:
            yield team, lost_host_alert(team, host, held, now)


def lost_host_alert(team: str, host: str, held: Sequence[OrphanedHold], now: float) -> Alert:
    """Make the alert about one lost host. The alert's id stays the same until the host's journals are in the ledger,
    or until the held money is released.
    """
    since = min(one.since for one in held)
    workers = sorted({one.worker for one in held})
    amounts = [f"{one.amount} ({one.budget})" for one in held]
    named = "; ".join(amounts[:_NAMED]) + (f"; and {len(amounts) - _NAMED} more" if len(amounts) > _NAMED else "")
    text = (
        f"Host {host} has sent no report since {iso(since)}, and its workers' last spend is not in the ledger. "
        f"Until it is, budgets hold {named}. Start the gateway on its data directory again; if that is lost, "
        f"`thriftgate ledger release {host}` frees the money."
    )
    facts = {
        "host": host,
        "workers": workers,
        "held": [{"budget": one.budget, "amount": one.amount} for one in held],
        "since": iso(since),
        "threshold": "lost_host",
        "at": iso(now),
        "text": text,
    }
    share = max(one.units / max(one.limit_units, 1) for one in held)
    severity: Severity = "critical" if share >= _CRITICAL_SHARE else "warning"
    return alert(f"{team}/lost_host/{host}/{iso(since)}"[:160], "lost_host", severity, team, facts)
