"""Sums money exactly in SQL, and opens snapshots in which several sums see the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, func

from gateway.state.sql.database import Database

_SPLIT = 10**6


def pico_sum(column: ColumnElement[Any]) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """The two SQL columns from which `whole` computes the sum of `column`. A single sum of integers fails in SQLite
    above 9.2 million USD."""
    return func.sum(column // _SPLIT), func.sum(column % _SPLIT)


def whole(high: Any, low: Any) -> int:
    """Compute the sum in pico-dollars from the two columns of `pico_sum`; 0 if no row has a price."""
    return int(high or 0) * _SPLIT + int(low or 0)


@contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """Open a read transaction in which all statements see the same rows. Call it in a thread, because it blocks."""
    with database.read() as connection:
        if not database.sqlite:  # in SQLite, reading transactions are always snapshots
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield connection
