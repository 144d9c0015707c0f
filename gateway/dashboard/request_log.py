"""The page's log of requests. It can be filtered, is sorted by time or cost, and is read in pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, and_, case, cast, false, func, or_, select

from gateway.dashboard import queries
from gateway.dashboard.periods import Period
from gateway.ledger.reports.formats import cell, dollars
from gateway.ledger.store.entries import CHECK, IDLE, newest, of, within
from gateway.ledger.store.sums import pico_sum, whole
from gateway.state.sql.tables import ledger

PAGE = 50
MOST_EXPORTED = 10_000
MOST_GROUPS = 100
"""Maximum number of groups that are listed; those with the highest spend come first."""
GROUPS = {"key": "key_id", "end_user": "end_user", "session": "session", "model": "model", "backend": "backend"}
"""Name of a grouping → the ledger's column."""
STATUS = ("ok", "failed", "interrupted", "escalated")
CACHE = ("exact", "semantic", "join", "miss", "bypass", "off")
SORT = ("newest", "cost")
_TEXT = {
    "backend": ("backend",), "key": ("key_id",), "session": ("session",), "end_user": ("end_user",),
    "model": ("model_asked", "model"),
}  # fmt: skip
"""Name of a filter → columns. At least one of these columns must be equal to the filter's value."""
FILTERS = (*_TEXT, "status", "cache", "min_cost")
NONE = "(none)"
"""As a filter: the requests without a value, for example without an end user."""
_MOST_USD = Decimal(9_000_000)
_PICO = 10**12
_READ = 200
"""Number of rows that one statement reads. A request with retries has several rows, of which the first is enough."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selects requests: those of `team` in `period` that fulfil all `filters`. `own`: if this is not empty, only
    requests of one key are selected, the key with this lineage.
    """

    team: str
    period: Period
    filters: Mapping[str, str]
    own: str = ""


def check(filters: Mapping[str, str]) -> dict[str, str]:
    """Check the filters. Returns those that have a value. Raises ValueError, which names the invalid filter."""
    found = {name: filters[name] for name in FILTERS if filters.get(name)}
    for name, known in (("status", STATUS), ("cache", CACHE)):
        if name in found and found[name] not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}")
    if "min_cost" in found:
        try:
            usd = Decimal(found["min_cost"])
        except InvalidOperation:
            raise ValueError("min_cost must be an amount in USD, such as 0.05") from None
        if not (usd.is_finite() and 0 <= usd <= _MOST_USD):
            raise ValueError("min_cost must be an amount in USD, such as 0.05")
    return found


def _conditions(wanted: Wanted, table: Any) -> list[ColumnElement[bool]]:
    c, filters = table.c, wanted.filters
    which = [c.kind.not_in((CHECK, IDLE)), *within(wanted.period.since, wanted.period.until, wanted.team, table)]
    for name, columns in _TEXT.items():
        if name in filters:
            value = "" if filters[name] == NONE else filters[name]
            which.append(or_(*(c[column] == value for column in columns)))
    if "status" in filters:
        which.append(c.outcome == filters["status"])
    if "cache" in filters:
        which.append(c.cache == filters["cache"])
    if "min_cost" in filters:
        which.append(c.cost_pico >= int(Decimal(filters["min_cost"]) * _PICO))
    return [*which, c.key_id == wanted.own] if wanted.own else which


def page(connection: Connection, *, wanted: Wanted, sort: str, after: str) -> dict[str, Any]:
    """One page of the log: `{"requests", "next"}`. `after`: the value `next` of the previous page; empty for the first
    page. On the last page, `next` is empty. Raises ValueError for an invalid `after`."""
    if sort == "cost":
        ids, following = _dearest(connection, wanted, after)
    else:
        ids, following = _newest(connection, wanted, after, PAGE)
    found = queries.requests(connection, wanted.team, ids)
    return {
        "requests": found,
        "next": following,
        "key_names": queries.key_names(connection, {row["key"] for row in found}),
    }


def _newest(connection: Connection, wanted: Wanted, after: str, size: int) -> tuple[list[str], str]:
    """The ids of up to `size` newest requests, newest first, and the value of `after` for the next page. All rows of a
    request have the same time, so they are next to each other.
    """
    c, ids = ledger.c, dict[str, float]()
    while True:
        which = [newest, *_conditions(wanted, ledger), *([_older(after)] if after else [])]
        query = select(c.at, c.request_id).where(*which).order_by(c.at.desc(), c.request_id.desc())
        found = connection.execute(query.limit(_READ)).all()
        for at, id in found:
            if len(ids) == size and id not in ids:
                last = next(reversed(ids))
                return list(ids), f"{ids[last]!r}~{last}"
            ids[id] = at
        if len(found) < _READ:
            return list(ids), ""
        after = f"{found[-1].at!r}~{found[-1].request_id}"


def _older(after: str) -> ColumnElement[bool]:
    at, _, id = after.partition("~")
    try:
        moment = float(at)
    except ValueError:
        raise ValueError("after must be the value of next in the previous page") from None
    if not id:
        return false()
    c = ledger.c
    return or_(c.at < moment, and_(c.at == moment, c.request_id < id))


def _dearest(connection: Connection, wanted: Wanted, after: str) -> tuple[list[str], str]:
    if after and not (after.isascii() and after.isdigit() and len(after) < 7):
        raise ValueError("after must be the value of next in the previous page")
    offset, c = int(after or 0), ledger.c
    # The float only decides the order; a sum of integers could overflow.
    cost = func.sum(cast(func.coalesce(c.cost_pico, 0), Float))
    query = select(c.request_id).where(newest, *_conditions(wanted, ledger)).group_by(c.request_id)
    query = query.order_by(cost.desc(), c.request_id).limit(PAGE + 1).offset(offset)
    ids = list(connection.scalars(query))
    return ids[:PAGE], str(offset + PAGE) if len(ids) > PAGE else ""


COLUMNS = (
    "at", "id", "key", "model_asked", "backends", "outcome", "cache", "cost_usd", "saved_usd", "input_tokens",
    "output_tokens", "duration_ms", "session", "end_user", "tags", "simulated",
)  # fmt: skip


def as_csv(connection: Connection, wanted: Wanted) -> str:
    """The newest requests as CSV, at most `MOST_EXPORTED`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    after, left = "", MOST_EXPORTED
    while left > 0:
        ids, after = _newest(connection, wanted, after, min(500, left))
        for row in queries.requests(connection, wanted.team, ids):
            writer.writerow(_cells(row))
        left -= len(ids)
        if not after:
            break
    return out.getvalue()


def _cells(row: Mapping[str, Any]) -> list[Any]:
    own = {
        "backends": " ".join(attempt["backend"] for attempt in row["attempts"] if attempt["backend"]),
        "tags": " ".join(f"{name}={value}" for name, value in row["tags"].items()),
        "cost_usd": "" if row["unpriced"] else row["cost_usd"],
    }
    values = [own.get(name, row.get(name)) for name in COLUMNS]
    return ["" if value is None else cell(value) if isinstance(value, str) else value for value in values]


def groups(connection: Connection, wanted: Wanted, by: str) -> dict[str, Any]:
    """The spend of the selected requests, grouped by the column `by`. Simulated entries are excluded."""
    table = of(connection)
    c = table.c
    name = c[GROUPS[by]]
    cost = func.sum(cast(func.coalesce(c.cost_pico, 0), Float))
    columns = [
        func.sum(c.attempts),
        func.count(c.request_id.distinct()),
        func.sum(case((c.outcome == "failed", c.attempts), else_=0)),
        func.sum(case((c.attempt == 0, c.attempts), else_=0)),
        *pico_sum(c.cost_pico),
    ]
    query = select(name, *columns).where(c.simulated.is_(False), *_conditions(wanted, table)).group_by(name)
    found = connection.execute(query.order_by(cost.desc(), name).limit(MOST_GROUPS + 1)).all()
    rows = [_line(by, row) for row in found[:MOST_GROUPS]]
    names = queries.key_names(connection, {row["key"] for row in rows}) if by == "key" else {}
    return {"by": by, "rows": rows, "more": len(found) > MOST_GROUPS, "key_names": names}


def _line(by: str, row: Any) -> dict[str, Any]:
    counts = dict(zip(("calls", "requests", "failed", "cache_answers"), map(int, row[1:5]), strict=True))
    return {by: row[0], **counts, "cost_usd": dollars(whole(row[5], row[6]))}
