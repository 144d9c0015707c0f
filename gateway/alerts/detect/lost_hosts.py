"""The alert about a host that has stopped reporting while budgets hold money for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gateway.alerts.alert import Alert, alert
from gateway.domain.money.windows import iso
from gateway.domain.notify import Severity
from gateway.state.leases.orphaned_holds import OrphanedHold

AFTER_S = 30.0
"""Seconds without reports after which a host counts as lost. A host that returns earlier has drained its journals, so
no action is needed."""
_CRITICAL_SHARE = 0.1
"""Share of a budget's limit from which the alert is critical."""
_NAMED = 5


def found(holds: Iterable[OrphanedHold], now: float) -> Iterator[tuple[str, Alert]]:
    """Yield (team or `organisation NAME`, alert) for each combination of owner and lost host."""
    groups: dict[tuple[str, str], list[OrphanedHold]] = {}
    for one in holds:
        groups.setdefault((one.team or one.tag, one.host), []).append(one)
    for (team, host), held in groups.items():
        if now - min(one.since for one in held) >= AFTER_S:
            yield team, lost_host_alert(team, host, held, now)


def lost_host_alert(team: str, host: str, held: Sequence[OrphanedHold], now: float) -> Alert:
    """The alert. Its id stays the same until the host has been drained or released."""
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
