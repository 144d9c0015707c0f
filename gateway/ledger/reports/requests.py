"""Lists single requests of the ledger, newest request first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from gateway.domain.record import FOR_SESSIONS
from gateway.domain.units import usd_text
from gateway.ledger.rows import Row
from gateway.ledger.store.archive import MOST_ATTEMPTS
from gateway.ledger.store.entries import CHECK, IDLE, newest, within
from gateway.state.sql.tables import ledger

_COLUMNS = [ledger.c[name] for name in Row._fields]


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on rows. A row must fulfil all of them. A condition that is None is fulfilled by every row."""

    team: str | None = None
    backend: str | None = None
    model: str | None = None
    failed: bool = False
    """Whether only attempts that did not succeed are wanted."""
    since: float | None = None
    """Earliest start of the request, in Unix seconds."""
    key: str | None = None
    session: str | None = None
    cache: str | None = None
    """How the cache was used, such as exact, semantic or miss."""
    status: int | None = None


def recent(connection: Connection, wanted: Filter, limit: int) -> list[Row]:
    """The newest rows that fulfil `wanted`, newest row first; at most `limit` rows. Rows of background checks and of
    unused machine time are left out."""
    c = ledger.c
    which = [newest, c.kind.not_in((CHECK, IDLE, *FOR_SESSIONS)), *within(wanted.since, None, wanted.team, ledger)]
    which += [] if wanted.backend is None else [c.backend == wanted.backend]
    which += [] if wanted.model is None else [c.model_asked == wanted.model]
    which += [c.outcome != "ok"] if wanted.failed else []
    which += [] if wanted.key is None else [c.key_id == wanted.key]
    which += [] if wanted.session is None else [c.session == wanted.session]
    which += [] if wanted.cache is None else [c.cache == wanted.cache]
    which += [] if wanted.status is None else [c.status == wanted.status]
    query = select(*_COLUMNS).where(*which).order_by(c.at.desc(), c.id.desc()).limit(limit)
    return [Row(*values) for values in connection.execute(query)]


def of_request(connection: Connection, request_id: str) -> list[Row]:
    """All rows of a request, in the order of attempts. Empty if the ledger does not have the request."""
    query = select(*_COLUMNS).where(ledger.c.request_id == request_id, newest).order_by(ledger.c.attempt)
    return [Row(*values) for values in connection.execute(query.limit(MOST_ATTEMPTS))]


def as_object(row: Row) -> dict[str, Any]:
    """The row as JSON values. Money is exact decimal text in USD."""
    return {
        "at": row.at,
        "request": row.request_id,
        "attempt": row.attempt,
        "team": row.team,
        "key": row.key_id,
        "model": row.model_asked,
        "backend": row.backend or None,
        "outcome": row.outcome,
        "status": row.status,
        "error": row.error or None,
        "cache": row.cache,
        "input_tokens": row.usage.all_input,
        "output_tokens": row.usage.all_output,
        "cost_usd": None if row.cost_pico is None else usd_text(row.cost_pico),
        "saved_usd": None if row.saved_pico is None else usd_text(row.saved_pico),
        "ms": row.duration_ms,
        "escalated": row.escalated,
    }
