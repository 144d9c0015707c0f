"""Inserts rows into a table, and ignores rows that the table already has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Table, select

_MANY = 500
"""Maximum ids in one query. Older versions of SQLite allow 999 variables."""


def insert_once(
    connection: Connection,
    table: Table,
    fields: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    rest: Mapping[str, str | int | None] = MappingProxyType({}),
) -> int:
    """Insert the rows whose primary key is not in `table` yet, and return their number. `rows`: values for the columns
    `fields`. `rest`: values of further columns, equal for all rows."""
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
    """A value as SQL text that SQLite and PostgreSQL understand."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else str(value).upper()


def known(connection: Connection, table: Table, ids: Iterable[str]) -> set[str]:
    """The subset of `ids` that `table` already contains."""
    wanted = list(ids)
    found: set[str] = set()
    for start in range(0, len(wanted), _MANY):
        found.update(connection.scalars(select(table.c.id).where(table.c.id.in_(wanted[start : start + _MANY]))))
    return found
