"""Stores the figures of whole days, and finds them again as long as the ledger has the same number of entries for the
day.

Ledger rows are never changed. A late row or a correction adds a row; the roll-up of old rows adds sums and deletes the
stored days. So equal numbers of entries mean equal figures.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Float, bindparam, delete, func, insert, literal, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.store.entries import sums_alone
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger, ledger_days, ledger_sums

log = logging.getLogger(__name__)

KEPT_S = 400 * 86400
"""Days that began earlier are computed each time they are shown."""


class Day(NamedTuple):
    """The figures of one team between two moments (Unix seconds). `team`: empty for the figures of all teams.
    `entries`: number of the ledger's rows and sums in this time. `figures`: JSON values."""

    team: str
    since: float
    until: float
    entries: tuple[int, int]
    figures: Sequence[Any]


def counter(
    connection: Connection, tables: Sequence[Any], team: str | None
) -> Callable[[float, float], tuple[int, int]]:
    """Make a function that counts the ledger's rows and sums between two moments. `tables`: the tables to count, as
    `entries.apart` returns them.
    """
    since, until = bindparam("since", type_=Float), bindparam("until", type_=Float)
    known = (ledger, ledger_sums) if sums_alone in tables else (ledger,)
    counts = [
        select(func.count())
        .select_from(one)
        .where(one.c.at >= since, one.c.at < until, *([one.c.team == team] if team is not None else []))
        .scalar_subquery()
        for one in known
    ]
    query = select(*counts, *([] if len(known) == 2 else [literal(0)]))

    def count(first: float, last: float) -> tuple[int, int]:
        rows, sums = connection.execute(query, {"since": first, "until": last}).one()
        return int(rows), int(sums)

    return count


def stored(connection: Connection, team: str, since: float, until: float) -> Mapping[tuple[float, float], Day]:
    """Read the stored days in `[since, until)`: (begin, end) → day."""
    c = ledger_days.c
    which = (c.team == team, c.since >= since, c.until <= until)
    found = [
        Day(row.team, row.since, row.until, (row.rows, row.sums), orjson.loads(zlib.decompress(row.body)))
        for row in connection.execute(select(ledger_days).where(*which))
    ]
    return {(day.since, day.until): day for day in found}


def store(database: Database, days: Iterable[Day], now: float) -> None:
    """Store `days`, replacing older figures. Call this in a thread. A failure is only logged, because the days can be
    computed again."""
    c = ledger_days.c
    lines = [
        {"team": one.team, "since": one.since, "until": one.until, "rows": one.entries[0], "sums": one.entries[1]}
        | {"body": zlib.compress(orjson.dumps(one.figures), 1)}
        for one in days
        if one.since >= now - KEPT_S
    ]
    if not lines:
        return
    try:
        with database.begin() as connection:
            for team in {line["team"] for line in lines}:
                connection.execute(delete(ledger_days).where(c.team == team, c.since < now - KEPT_S))
            for line in lines:
                same = (c[name] == line[name] for name in ("team", "since", "until"))
                connection.execute(delete(ledger_days).where(*same))
            connection.execute(insert(ledger_days), lines)
    except SQLAlchemyError as error:
        log.info("the figures of %d days are not stored: %s", len(lines), error)
