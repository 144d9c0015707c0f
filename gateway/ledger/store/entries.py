"""The rows that reports count: rows that no newer row supersedes, and the sums that replace old rows."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, and_, literal, select, union_all

from gateway.ledger.store.sums import pico_sum, whole
from gateway.state.sql.tables import ledger, ledger_sums

IDLE = "idle"
"""Kind of a row with a machine's idle cost: its hourly price minus the cost of its attempts."""
CHECK = "shadow"
"""Kind of a background check: an attempt whose answer is only compared with other answers. The team pays for the check,
so all figures of spend include it."""
_BOTH = [column.name for column in ledger.columns if column.name in ledger_sums.c and column.name != "attempts"]
newest = ledger.c.id.not_in(select(ledger.c.supersedes).where(ledger.c.supersedes != ""))
"""Condition for rows that no later row supersedes."""
_raw = select(
    *(ledger.c[name] for name in _BOTH),
    *(ledger.c.session, ledger.c.prices, ledger.c.waited_ms),
    *(literal(1).label("attempts"), literal(0).label("alike")),
).where(newest)
_summed = select(
    *(ledger_sums.c[name] for name in _BOTH),
    *(literal("").label("session"), literal("").label("prices"), literal(0).label("waited_ms")),
    *(ledger_sums.c.attempts, ledger_sums.c.requests.label("alike")),
)
entries = union_all(_raw, _summed).subquery("entries")
"""The columns that table `ledger` and the table of sums share. Sums have empty `session`, `prices` and `waited_ms`.
`attempts`: number of raw rows that the row stands for. `alike`: 0 for a raw row; for a sum, the number of requests for
which its `request_id` stands."""
_alone, sums_alone = _raw.subquery("alone"), _summed.subquery("sums_alone")


def only(*names: str) -> Subquery:
    """The columns `names` of `entries`. SQLAlchemy compiles a query of a few columns in half the time."""
    raw, summed = ([part.selected_columns[name] for name in names] for part in (_raw, _summed))
    return union_all(_raw.with_only_columns(*raw), _summed.with_only_columns(*summed)).subquery("entries")


def of(connection: Connection) -> Any:
    """The table that reports read. It is `entries`, which has rows and sums. If no rows have been replaced by sums yet,
    it is the ledger's table alone, because this is twice as fast."""
    return entries if _rolled_up(connection) else _alone


def apart(connection: Connection) -> list[Any]:
    """The ledger's rows and, if there are any, the sums that replaced older rows, as two tables. Use them for queries
    whose results can be added up: two such queries take less time than one query of `entries`."""
    return [_alone, sums_alone] if _rolled_up(connection) else [_alone]


def _rolled_up(connection: Connection) -> bool:
    return connection.execute(select(ledger_sums.c.rollup).limit(1)).first() is not None


def spent(connection: Connection, *which: ColumnElement[bool]) -> int:
    """The pico-dollars of all entries that fulfil the conditions `which`. Simulated entries are excluded."""
    real = and_(entries.c.simulated.is_(False), *which)
    high, low = connection.execute(select(*pico_sum(entries.c.cost_pico)).where(real)).one()
    return whole(high, low)


def within(
    since: float | None, until: float | None, team: str | None = None, table: Any = entries
) -> list[ColumnElement[bool]]:
    """SQL conditions for rows of `table` that began in `[since, until)` (Unix seconds). If `team` is given, the rows
    must belong to it."""
    c = table.c
    return [
        *([c.team == team] if team is not None else []),
        *([c.at >= since] if since is not None else []),
        *([c.at < until] if until is not None else []),
    ]
