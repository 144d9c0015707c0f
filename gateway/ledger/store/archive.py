"""Builds a short flight record from the ledger's rows, for a request whose full flight record has expired."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.units import usd_text
from gateway.ledger.rows import Row
from gateway.ledger.store.entries import CHECK, newest
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 64
"""Maximum number of a request's attempts that are read."""
FIND_S = 5.0
_COLUMNS = [ledger.c[name] for name in Row._fields]


class Archive:
    """Finds requests in the ledger; never writes. A request can be found about a second after its end."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, request_id: str, team: str) -> dict[str, Any] | None:
        """The request's flight record as JSON values. None if the request is unknown or the database is down."""
        its = (ledger.c.request_id == request_id, ledger.c.team == team, newest)
        query = select(*_COLUMNS).where(*its).order_by(ledger.c.attempt).limit(MOST_ATTEMPTS)

        def read(connection: Connection) -> list[Row]:
            return [Row(*values) for values in connection.execute(query)]

        try:
            rows = await self._database.run(read, timeout_s=FIND_S, writes=False)
        except SQLAlchemyError as error:
            log.warning("request %s cannot be looked up in the ledger: %s", request_id, type(error).__name__)
            return None
        return retold(rows) if rows else None


def retold(rows: Sequence[Row]) -> dict[str, Any]:
    """Build the flight record of one request. `rows`: all rows of the request, in the order of attempts. Background
    checks are listed as attempts, but costs and times do not include them. Unknown fields are None or empty."""
    calls = [row for row in rows if row.attempt > 0]  # attempt 0 is an answer from the cache
    rows = [row for row in rows if row.kind != CHECK] or rows  # background checks do not serve the client
    first, served = rows[0], _served(rows)
    return {
        "id": first.request_id,
        "team": first.team,
        "key": first.key_id,
        "at": first.at,
        "model": first.model_asked,
        "dialect": first.dialect,
        "stream": first.stream,
        "status": 200 if served.outcome == "ok" else None,
        "error": None if served.outcome == "ok" else served.error or None,
        "finish": None,
        "cache": served.cache,
        "cache_score": None,
        "difficulty": first.difficulty,
        "abstained": False,
        "route": None,
        "attempts": [_attempt(row) for row in calls],
        "escalated": any(row.escalated for row in rows),
        "trimmed_tokens": served.trimmed_tokens,
        "cost_usd": _usd(_cost(rows)),
        "saved_usd": _usd(served.saved_pico),
        "first_byte_ms": _since(first, served, served.first_byte_ms),
        "duration_ms": _since(first, rows[-1], rows[-1].duration_ms),
        "degraded": [],
        "tags": orjson.loads(first.tags),
        "session": first.session or None,
        "agent": first.agent or None,
        "class": first.traffic_class or None,
        "notes": [],
        "source": "ledger",
    }


def _attempt(row: Row) -> dict[str, Any]:
    usage = row.usage
    return {
        "id": row.id,
        "backend": row.backend,
        "model": row.model,
        "tier": row.tier,
        "kind": row.kind or None,
        "outcome": row.outcome,
        "status": row.status,
        "error": row.error or None,
        "input_tokens": usage.all_input,
        "cached_tokens": row.cached_tokens,
        "output_tokens": usage.all_output,
        "estimated": row.estimated,
        "confidence": None,
        "cost_usd": _usd(row.cost_pico),
        "service_tier": row.service_tier or None,
        "unpriced": row.unpriced or None,
        "doubt": row.doubt or None,
        "trimmed_tokens": row.trimmed_tokens,
        "above_ceiling": row.above_ceiling,
    }


def _served(rows: Sequence[Row]) -> Row:
    """The row whose answer the client received; the last row if none succeeded."""
    for outcome in ("ok", "interrupted"):
        for row in reversed(rows):
            if row.outcome == outcome:
                return row
    return rows[-1]


def _cost(rows: Sequence[Row]) -> int | None:
    """Pico-dollars of all attempts, including failed ones; None if no row has a price."""
    priced = [row.cost_pico for row in rows if row.cost_pico is not None]
    return sum(priced) if priced else None


def _since(first: Row, row: Row, after_ms: float | None) -> float | None:
    """The time from the start of the request to a moment in the attempt of `row`, in milliseconds. `first`: the
    request's first row. `after_ms`: milliseconds from the attempt's call to that moment; None: the moment never came.
    """
    return None if after_ms is None else round((row.called_at - first.at) * 1000 + after_ms, 3)


def _usd(pico: int | None) -> str | None:
    return None if pico is None else usd_text(pico)
