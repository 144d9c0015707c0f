"""Exact sums of money in SQL, and a snapshot to take several of them from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, func

from gateway.state.sql.database import Database

_SPLIT = 10**6


def pico_sum(column: ColumnElement[Any]) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Two columns for `whole`: SQLite's own sum of integers fails beyond 9.2 million USD."""
    return func.sum(column // _SPLIT), func.sum(column % _SPLIT)


def whole(high: Any, low: Any) -> int:
    """Pico-dollars from the two columns of `pico_sum`; 0 where nothing was priced."""
    return int(high or 0) * _SPLIT + int(low or 0)


@contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """A reading transaction in which every statement sees the same rows. Off the loop only."""
    with database.read() as connection:
        if not database.sqlite:  # whose readers never see anything else
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield connection
