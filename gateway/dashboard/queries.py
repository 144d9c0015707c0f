"""What the page asks SQL beyond the usage report; every function reads on the connection of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, Float, Row, and_, case, cast, func, select

from gateway.domain.backend import RANK
from gateway.domain.windows import iso
from gateway.ledger.formats import dollars
from gateway.ledger.sums import pico_sum, whole
from gateway.state.tables import alerts, keys, ledger

_LETTERS = 200
"""Rows looked through for the latest alerts; an alert has one for itself and one for each receiver."""


def real(team: str, since: float, until: float) -> ColumnElement[bool]:
    """The team's rows of `[since, until)` (Unix seconds), simulated ones left out."""
    at = ledger.c.at
    return and_(ledger.c.team == team, at >= since, at < until, ledger.c.simulated.is_(False))


def tiers(connection: Connection, which: ColumnElement[bool]) -> list[dict[str, Any]]:
    """For each tier, weak to strong: answers given, answers taken back for a stronger one, cost of all attempts."""
    c = ledger.c
    tokens = c.input_tokens + c.cached_tokens + c.cache_write_5m_tokens + c.cache_write_1h_tokens
    tokens += c.output_tokens + c.reasoning_tokens + c.audio_tokens
    found = connection.execute(
        select(c.tier, _count(c.outcome.in_(("ok", "interrupted"))), _count(c.outcome == "escalated"))
        .add_columns(_count(and_(c.cost_pico.is_(None), tokens > 0)), *pico_sum(c.cost_pico))
        .where(which, c.attempt > 0)
        .group_by(c.tier)
    ).all()
    lines = [
        {
            "tier": tier,
            "answers": int(answers),
            "escalated": int(escalated),
            "unpriced": int(unpriced),
            "cost_usd": dollars(whole(high, low)),
        }
        for tier, answers, escalated, unpriced, high, low in found
    ]
    return sorted(lines, key=lambda line: RANK.get(line["tier"], len(RANK)))


def cache_answers(connection: Connection, which: ColumnElement[bool]) -> list[dict[str, Any]]:
    """For each way of hitting the cache: answers, what they saved, and for how many of them nobody knows that."""
    c = ledger.c
    found = connection.execute(
        select(c.cache, func.count(), _count(c.saved_pico.is_(None)), *pico_sum(c.saved_pico))
        .where(which, c.attempt == 0)
        .group_by(c.cache)
        .order_by(func.count().desc(), c.cache)
    ).all()
    return [
        {"kind": kind, "answers": answers, "unpriced": int(unpriced), "saved_usd": dollars(whole(high, low))}
        for kind, answers, unpriced, high, low in found
    ]


def latency(connection: Connection, which: ColumnElement[bool]) -> list[dict[str, Any]]:
    """Milliseconds from call to end of each backend's whole answers: the nearest-rank median and 95th percentile."""
    c = ledger.c
    place = func.row_number().over(partition_by=c.backend, order_by=c.duration_ms).label("place")
    size = func.count().over(partition_by=c.backend).label("size")
    whole_answers = and_(which, c.attempt > 0, c.outcome.in_(("ok", "escalated")), c.duration_ms.is_not(None))
    ranked = select(c.backend, c.duration_ms, place, size).where(whole_answers).subquery().c

    def percentile(percent: int) -> ColumnElement[Any]:
        rank = (ranked.size * percent + 99) // 100
        return func.max(case((ranked.place == rank, ranked.duration_ms)))

    found = connection.execute(
        select(ranked.backend, ranked.size, percentile(50), percentile(95))
        .group_by(ranked.backend, ranked.size)
        .order_by(ranked.backend)
    ).all()
    return [
        {"backend": backend, "answers": size, "p50_ms": float(p50), "p95_ms": float(p95)}
        for backend, size, p50, p95 in found
    ]


def dearest(connection: Connection, which: ColumnElement[bool], count: int) -> list[dict[str, Any]]:
    """The requests that cost most, all their attempts together."""
    c = ledger.c
    # As a float it only decides the order; a sum of integers could overflow.
    cost = func.sum(cast(c.cost_pico, Float))
    ids = connection.scalars(
        select(c.request_id)
        .where(which, c.cost_pico > 0)
        .group_by(c.request_id)
        .order_by(cost.desc(), c.request_id)
        .limit(count)
    ).all()
    rows = connection.execute(select(ledger).where(which, c.request_id.in_(ids)).order_by(c.attempt)).all()
    return [_request(id, [row for row in rows if row.request_id == id]) for id in ids]


def _request(id: str, rows: list[Row[Any]]) -> dict[str, Any]:
    first, last = rows[0], rows[-1]
    ends = [row.at + row.duration_ms / 1000 for row in rows if row.duration_ms is not None]
    return {
        "id": id,
        "at": iso(first.at),
        "key": first.key_id,
        "model_asked": first.model_asked,
        "tags": orjson.loads(first.tags),
        "difficulty": first.difficulty,
        "stream": first.stream,
        "cost_usd": dollars(sum(row.cost_pico or 0 for row in rows)),
        "input_tokens": sum(_input(row) for row in rows),
        "output_tokens": sum(row.output_tokens + row.reasoning_tokens + row.audio_tokens for row in rows),
        "duration_ms": round((max(ends) - first.at) * 1000) if ends else None,
        "outcome": last.outcome,
        "attempts": [_attempt(row) for row in rows],
    }


def _attempt(row: Row[Any]) -> dict[str, Any]:
    return {
        "backend": row.backend,
        "model": row.model,
        "tier": row.tier,
        "outcome": row.outcome,
        "status": row.status,
        "error": row.error,
        "cost_usd": None if row.cost_pico is None else dollars(row.cost_pico),
        "price_source": row.price_source,
        "trimmed_tokens": row.trimmed_tokens,
    }


def _input(row: Row[Any]) -> int:
    tokens: int = row.input_tokens + row.cached_tokens + row.cache_write_5m_tokens + row.cache_write_1h_tokens
    return tokens


def latest_alerts(connection: Connection, team: str, count: int) -> list[dict[str, Any]]:
    """Newest first; an alert and what became of it at each of its receivers."""
    c = alerts.c
    rows = connection.execute(
        select(c.created_at, c.payload, c.target, c.delivered_at, c.tries, c.last_error)
        .where(c.team == team)
        .order_by(c.created_at.desc(), c.id)
        .limit(_LETTERS)
    ).all()
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        payload = orjson.loads(row.payload)
        one = found.setdefault(
            payload["id"],
            {
                "at": iso(row.created_at),
                "text": payload["text"],
                "threshold": payload["threshold"],
                "window": payload["window"],
                "receivers": [],
            },
        )
        if row.target:
            accepted = None if row.delivered_at is None else iso(row.delivered_at)
            one["receivers"].append(
                {"target": row.target, "accepted": accepted, "tries": row.tries, "error": row.last_error}
            )
    return list(found.values())[:count]


def key_names(connection: Connection, ids: Iterable[str]) -> dict[str, str]:
    """Key id → the name its maker gave it, where there is one."""
    found = connection.execute(select(keys.c.id, keys.c.name).where(keys.c.id.in_(list(ids)), keys.c.name != ""))
    return {row.id: row.name for row in found}


def teams(connection: Connection) -> set[str]:
    """Teams that have or had a key."""
    return set(connection.scalars(select(keys.c.team).distinct()))


def _count(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.sum(case((condition, 1), else_=0))
