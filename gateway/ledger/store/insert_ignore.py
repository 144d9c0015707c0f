"""Inserts rows that do not exist yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Table, select

_MANY = 500
"""Ids in one query; SQLite's older limit of variables is 999."""


def insert_once(
    connection: Connection,
    table: Table,
    fields: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    rest: Mapping[str, str | int | None] = MappingProxyType({}),
) -> int:
    """How many of `rows` were not in `table` before, by primary key; a row is the values of `fields`.

    `rest`: what other columns hold, the same in all rows. Written as SQL text: SQLAlchemy's own statement costs twice
    the CPU a row, and every request is a row. `None` and booleans cost SQLite's driver most when they are bound.
    """
    if not rows:
        return 0
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    values = [*[mark] * len(fields), *map(_literal, rest.values())]
    statement = (
        f"INSERT INTO {table.name} ({', '.join([*fields, *rest])}) VALUES ({', '.join(values)}) "  # noqa: S608
        f"ON CONFLICT ({table.primary_key.columns[0].name}) DO NOTHING"
    )
    return connection.exec_driver_sql(statement, list(rows)).rowcount


def _literal(value: str | int | None) -> str:
    """Both databases read `NULL`, `TRUE` and `FALSE`."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else str(value).upper()


def known(connection: Connection, table: Table, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that `table` has."""
    wanted = list(ids)
    found: set[str] = set()
    for start in range(0, len(wanted), _MANY):
        found.update(connection.scalars(select(table.c.id).where(table.c.id.in_(wanted[start : start + _MANY]))))
    return found
