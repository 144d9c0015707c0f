"""The data of the page about one request: its course in time, the reasons for its route, and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from sqlalchemy import Connection, select

from gateway.dashboard import queries
from gateway.domain.tenant import Tenant
from gateway.ledger.reports.explanation import sentences
from gateway.ledger.reports.requests import of_request
from gateway.ledger.rows import Row
from gateway.ledger.store.archive import retold
from gateway.state.sql.tables import ledger

MOST_ID = 48
"""Maximum characters of a request's id."""


def sees_team(tenant: Tenant) -> bool:
    """Return whether the key may see the requests of all keys of its team. It may if it has the scope `usage` or
    `admin`, or if the team's policy has `data.share: team`."""
    return bool(tenant.key.scopes & {"usage", "admin"}) or tenant.policy.data.share == "team"


def team_of(connection: Connection, id: str) -> str | None:
    """The team that made a request; None if the ledger does not have the request."""
    found: str | None = connection.scalar(select(ledger.c.team).where(ledger.c.request_id == id).limit(1))
    return found


def rows_of(connection: Connection, id: str, team: str) -> tuple[list[Row], dict[str, Any] | None, dict[str, str]]:
    """Read a request of `team`. Returns (its rows in the ledger, the request as the page's log shows it, key id → name
    of the key). If the request belongs to another team, there are no rows, and the request is None.
    """
    rows = [row for row in of_request(connection, id) if row.team == team]
    found = queries.requests(connection, team, [id])
    names = queries.key_names(connection, {row.key_id for row in rows})
    return rows, found[0] if found else None, names


def as_object(
    rows: Sequence[Row], request: Mapping[str, Any] | None, flight: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """One request as JSON values; None if it is unknown. `flight`: its flight record, if that is still stored."""
    told = flight or (retold(rows) if rows else None)
    if told is None:
        return None
    return {
        "request": request,
        "flight": told,
        "sentences": list(sentences(told, UTC)),
        "phases": _phases(rows),
        "prices": [{"backend": row.backend, "prices": row.prices, "source": row.price_source} for row in rows],
    }


def _phases(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The begin, the first byte and the end of each call of a backend, in milliseconds since the request's start."""
    found = list[dict[str, Any]]()
    before = 0.0
    for row in rows:
        if row.attempt > 0 and row.duration_ms is not None:
            start = max(0.0, (row.called_at - rows[0].at) * 1000)
            late = row.kind == "" and start < before  # a next call begins after the one before
            start = before if late else start
            first = None if row.first_byte_ms is None else round(start + row.first_byte_ms, 1)
            found.append(
                {
                    "backend": row.backend,
                    "kind": row.kind,
                    "outcome": row.outcome,
                    "start_ms": round(start, 1),
                    "first_byte_ms": first,
                    "end_ms": round(start + row.duration_ms, 1),
                    "after_another": late,
                }
            )
            before = start + row.duration_ms if row.kind == "" else before
    return found
