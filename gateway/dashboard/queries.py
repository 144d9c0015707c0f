"""SQL queries that only the page needs. The connection of each query reads one snapshot of the database."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import orjson
from sqlalchemy import ColumnElement, Connection, Float, Integer, Row, and_, case, cast, func, or_, select

from gateway.alerts.delivery import deliveries
from gateway.domain.money.windows import iso
from gateway.ledger.reports.formats import dollars
from gateway.ledger.reports.why import why
from gateway.ledger.rows import Row as Entry
from gateway.ledger.store.entries import CHECK, IDLE, of, within
from gateway.ledger.store.sums import pico_sum, whole
from gateway.state.sql.tables import alerts, keys, ledger

_LETTERS = 200
"""Number of rows that are read to find the latest alerts. One alert has a row of its own and a row per receiver."""
OPEN_DAYS = 30
"""An alert that nobody acknowledged counts as open for this many days."""
_DAY_S = 86400
_SEVERITIES = ("info", "warning", "critical")
_superseded = select(ledger.c.supersedes).where(ledger.c.supersedes != "")


def raw(team: str, since: float, until: float) -> ColumnElement[bool]:
    """The SQL condition for the ledger rows of a team whose requests began in `[since, until)` (Unix seconds). Excluded
    are rows of simulated backends, and rows that a newer row has replaced. Rolled-up rows are in another table."""
    c = ledger.c
    period = and_(c.team == team, c.at >= since, c.at < until)
    return and_(period, c.simulated.is_(False), c.id.not_in(_superseded))


def latency(connection: Connection, which: ColumnElement[bool]) -> list[dict[str, Any]]:
    """The latency of each backend: percentiles of the duration (nearest rank) and the median time to the first byte.
    The values are whole milliseconds, over complete answers only. `which`: condition that selects the ledger's
    rows.
    """
    ends = _milliseconds(connection, which, ledger.c.duration_ms)
    begins = _milliseconds(connection, which, ledger.c.first_byte_ms)
    return [
        {
            "backend": backend,
            "answers": sum(times.values()),
            "p50_ms": _percentile(times, 50),
            "p95_ms": _percentile(times, 95),
            "first_p50_ms": _percentile(begins.get(backend, Counter()), 50),
        }
        for backend, times in sorted(ends.items())
    ]


def _milliseconds(
    connection: Connection, which: ColumnElement[bool], column: ColumnElement[Any]
) -> dict[str, Counter[int]]:
    """Count the answers by backend and by milliseconds in `column`: backend → milliseconds → number of answers.
    Percentiles are computed from these numbers, because there are fewer different values than answers. `which`:
    condition that selects the ledger's rows.
    """
    c = ledger.c
    rounded = column + 0.5
    # SQLite may lack FLOOR, PostgreSQL's CAST rounds.
    whole = cast(rounded if connection.dialect.name == "sqlite" else func.floor(rounded), Integer)
    served = and_(which, c.attempt > 0, c.kind == "", c.outcome.in_(("ok", "escalated")), column.is_not(None))
    found: dict[str, Counter[int]] = {}
    for backend, milliseconds, answers in connection.execute(
        select(c.backend, whole, func.count()).where(served).group_by(c.backend, whole)
    ):
        found.setdefault(backend, Counter())[milliseconds] += answers
    return found


def _percentile(times: Counter[int], percent: int) -> int | None:
    rank = math.ceil(times.total() * percent / 100)
    for milliseconds in sorted(times):
        rank -= times[milliseconds]
        if rank <= 0:
            return milliseconds
    return None


def dearest(connection: Connection, which: ColumnElement[bool], count: int) -> list[dict[str, Any]]:
    """The `count` most expensive requests. The cost of a request is the sum of the costs of its attempts. `which`:
    condition that selects the ledger's rows.
    """
    c = ledger.c
    # The float only decides the order; a sum of integers could overflow.
    cost = func.sum(cast(c.cost_pico, Float))
    ids = connection.scalars(
        select(c.request_id)
        .where(which, c.cost_pico > 0, c.kind != "idle")
        .group_by(c.request_id)
        .order_by(cost.desc(), c.request_id)
        .limit(count)
    ).all()
    rows = connection.execute(select(ledger).where(which, c.request_id.in_(ids)).order_by(c.attempt)).all()
    return [_request(id, [row for row in rows if row.request_id == id]) for id in ids]


def beside_savings(connection: Connection, since: float, until: float, team: str | None) -> dict[str, tuple[int, int]]:
    """Two sums for each team: the pico-dollars that answers from the cache saved, and the cost of unused machine time
    in pico-dollars. The sums include entries that began in `[since, until)` (Unix seconds).
    """
    table = of(connection)
    c = table.c
    which = and_(c.simulated.is_(False), *within(since, until, team, table), or_(c.attempt == 0, c.kind == IDLE))
    idle = case((c.kind == IDLE, c.cost_pico))
    query = select(c.team, *pico_sum(c.saved_pico), *pico_sum(idle)).where(which).group_by(c.team)
    return {row[0]: (whole(*row[1:3]), whole(*row[3:5])) for row in connection.execute(query)}


def requests(connection: Connection, team: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The requests of `team` with these ids, in the order of `ids`. Ids of other teams are left out."""
    c = ledger.c
    # The team is compared below and not in SQL, so that SQL uses the index on request_id. The one on teams is slower.
    which = and_(c.request_id.in_(ids), c.id.not_in(_superseded))
    found: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(select(ledger).where(which).order_by(c.attempt)):
        if row.team == team:
            found.setdefault(row.request_id, []).append(row)
    return [_request(id, found[id]) for id in ids if id in found]


def _request(id: str, rows: list[Row[Any]]) -> dict[str, Any]:
    own = [row for row in rows if row.kind != CHECK] or rows
    first, last = own[0], own[-1]
    ends = [row.at + (row.waited_ms + row.duration_ms) / 1000 for row in own if row.duration_ms is not None]
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
        "output_tokens": sum(_output(row) for row in rows),
        "duration_ms": round((max(ends) - first.at) * 1000) if ends else None,
        "outcome": last.outcome,
        "error": last.error,
        "cache": last.cache,
        "saved_usd": None if last.saved_pico is None else dollars(last.saved_pico),
        "unpriced": all(row.cost_pico is None for row in rows),
        "escalated": any(row.outcome == "escalated" for row in own),
        "trimmed_tokens": max(row.trimmed_tokens for row in own),
        "session": first.session,
        "end_user": first.end_user,
        "agent": first.agent,
        "why": why([Entry(*(getattr(row, name) for name in Entry._fields)) for row in rows]),
        "simulated": first.simulated,
        "attempts": [_attempt(row) for row in rows],
    }


def _attempt(row: Row[Any]) -> dict[str, Any]:
    return {
        "backend": row.backend,
        "model": row.model,
        "tier": row.tier,
        "kind": row.kind,
        "outcome": row.outcome,
        "status": row.status,
        "error": row.error,
        "cost_usd": None if row.cost_pico is None else dollars(row.cost_pico),
        "price_source": row.price_source,
        "prices": row.prices,
        "service_tier": row.service_tier,
        "unpriced": row.unpriced,
        "trimmed_tokens": row.trimmed_tokens,
    }


def _input(row: Row[Any]) -> int:
    written = row.cache_write_5m_tokens + row.cache_write_1h_tokens
    tokens: int = row.input_tokens + row.cached_tokens + written + row.audio_input_tokens + row.image_input_tokens
    return tokens


def _output(row: Row[Any]) -> int:
    tokens: int = row.output_tokens + row.reasoning_tokens + row.audio_tokens + row.image_tokens
    return tokens


def latest_alerts(connection: Connection, team: str, count: int, now: float) -> list[dict[str, Any]]:
    """The `count` latest alerts. Open alerts come first. Among the open and among the other alerts, the newest come
    first. Each alert has the result of its delivery to each receiver. Of several alerts about one budget in one
    window, only the most severe is included.
    """
    found: dict[str, dict[str, Any]] = {}
    for sent in deliveries.latest(connection, team, _LETTERS):
        id = sent.payload["id"]
        if sent.target:
            found.setdefault(id, _alert(sent))["receivers"].append(_receiver(sent))
        else:  # an escalation's row may come first, and its text says that the alert was not acknowledged
            found[id] = {**_alert(sent), "receivers": found[id]["receivers"] if id in found else []}
    _name_keys(connection, [one["budget"] for one in found.values() if one["budget"]])
    lines = _most_severe((one.pop("payload"), one) for one in found.values())
    for payload, one in lines:
        one["open"] = one["acknowledged"] is None and not _ended(payload, now)
    return sorted((one for _, one in lines), key=lambda one: (one["open"], str(one["at"])), reverse=True)[:count]


def _name_keys(connection: Connection, budgets: Sequence[dict[str, Any]]) -> None:
    """Replace the ids of keys by their names, in alerts about budgets that apply to each key."""
    names = key_names(connection, {one["who"] for one in budgets if one["per"] == "key"})
    for one in budgets:
        one["who"] = names.get(one["who"], one["who"])


_T = TypeVar("_T")


def _most_severe(found: Iterable[tuple[dict[str, Any], _T]]) -> list[tuple[dict[str, Any], _T]]:
    """Select the most severe alert for each budget, window and subject. `found`: (payload, any further value) of each
    alert."""
    kept: dict[tuple[str, ...], tuple[dict[str, Any], _T]] = {}
    for payload, one in found:
        fact = tuple(str(payload.get(name)) for name in ("budget", "window_start", "key", "end_users", "sessions"))
        which = fact if "budget" in payload else (str(payload["id"]),)
        if which not in kept or _rank(payload) > _rank(kept[which][0]):
            kept[which] = payload, one
    return list(kept.values())


def _rank(payload: dict[str, Any]) -> tuple[int, str]:
    severity = payload.get("severity", "")
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else 0, str(payload.get("at", ""))


def _ended(payload: dict[str, Any], now: float) -> bool:
    """Return whether the window of an alert's budget is over, so that nobody needs to act."""
    end = payload.get("window_end")
    return end is not None and end <= iso(now)


def _alert(sent: deliveries.DeliveryResult) -> dict[str, Any]:
    acknowledged = None
    if sent.acknowledged_at is not None:
        acknowledged = {"at": iso(sent.acknowledged_at), "by": sent.acknowledged_by}
    return {
        "id": sent.payload["id"],
        "at": iso(sent.created_at),
        "text": sent.payload["text"],
        "kind": sent.kind,
        "severity": sent.severity,
        "threshold": sent.payload.get("threshold"),
        "budget": _budget(sent.payload),
        "acknowledged": acknowledged,
        "receivers": [],
        "payload": sent.payload,
    }


def _budget(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The figures of an alert about a budget, from which the page makes its text in other languages. None for other
    alerts."""
    unit = next((unit for unit in ("usd", "tokens") if f"limit_{unit}" in payload), None)
    if unit is None:
        return None
    spent, limit = (str(payload[f"{name}_{unit}"]) for name in ("spent", "limit"))
    per = next((per for per in ("key", "end_user", "session") if per in payload or f"{per}s" in payload), "")
    who = payload.get(per) or ", ".join(payload.get(f"{per}s", ()))
    return {"window": payload["window"], "per": per, "who": who, "unit": unit, "spent": spent, "limit": limit}


def _receiver(sent: deliveries.DeliveryResult) -> dict[str, Any]:
    return {
        "target": sent.target,
        "accepted": None if sent.delivered_at is None else iso(sent.delivered_at),
        "given_up": sent.dead_at is not None,
        "tries": sent.tries,
        "error": sent.last_error,
    }


def open_alerts(connection: Connection, now: float) -> dict[str, int]:
    """Count the open alerts of the last `OPEN_DAYS` days: team → number. An alert is open if it was not acknowledged
    and its window is not over. All alerts about one budget in one window count once."""
    c = alerts.c
    which = and_(c.target == "", c.created_at >= now - OPEN_DAYS * _DAY_S)
    rows = connection.execute(select(c.team, c.payload, c.acknowledged_at).where(which)).all()
    of_team = defaultdict[str, list[tuple[dict[str, Any], float | None]]](list)
    for row in rows:
        of_team[row.team].append((orjson.loads(row.payload), row.acknowledged_at))
    found = {
        team: sum(at is None and not _ended(payload, now) for payload, at in _most_severe(sent))
        for team, sent in of_team.items()
    }
    return {team: count for team, count in found.items() if count}


def key_names(connection: Connection, ids: Iterable[str]) -> dict[str, str]:
    """The names of the keys that have a name: key id → name."""
    found = connection.execute(select(keys.c.id, keys.c.name).where(keys.c.id.in_(list(ids)), keys.c.name != ""))
    return {row.id: row.name for row in found}


def teams(connection: Connection) -> set[str]:
    """The teams that have a key, or had one before."""
    return set(connection.scalars(select(keys.c.team).distinct()))
