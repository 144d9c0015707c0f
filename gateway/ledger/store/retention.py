"""Replaces old rows by sums per quarter of an hour, and stores this as an entry in the hash chain. The sums are exact
to the pico-dollar."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, text

from gateway.domain.protocols import Clock
from gateway.ledger.rows import FIELDS, Row
from gateway.ledger.store.chain import Head, Rollup, canonical, following, genesis, sums_hash
from gateway.ledger.store.chain_heads import ChainHeads
from gateway.ledger.store.rollup import summed
from gateway.ledger.store.verify import SUMS
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger, ledger_chains, ledger_days, ledger_rollups, ledger_sums

log = logging.getLogger(__name__)

DAY_S = 86400.0
EVERY_S = 3600.0
"""Seconds until the next search for old rows, if the last search found none."""
BATCH = 5000
"""Maximum rows in one transaction."""
MANY = 500
"""Maximum ids in one statement."""
_LOCK = 0x7468726966740005
"""Id of the PostgreSQL advisory lock that a process holds while it removes rows."""
_ROW = [ledger.c[name] for name in FIELDS]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Old rows of one chain, in order and without gaps, with the chain's hash before the first row and its hash after
    the last row. `chain` is empty for rows that are in no chain."""

    chain: str
    rows: list[Row]
    first: int | None = None
    last: int | None = None
    before: bytes | None = None
    after: bytes | None = None


class Retention:
    """Replaces old rows by sums. The ledger's writer calls it in its own thread, between two reads of the journals."""

    def __init__(self, database: Database, heads: ChainHeads, keep_days: int, clock: Clock = time) -> None:
        self._database, self._heads, self._keep_days, self._clock = database, heads, keep_days, clock
        self._next_at = float("-inf")
        self._broken: set[str] = set()
        """Chains whose rows must not be removed, because their rows have changed since they were written."""

    def due(self) -> bool:
        """Whether it is time to search for old rows."""
        return self._clock.monotonic() >= self._next_at

    def step(self) -> int:
        """Replace one batch of old rows by sums. Returns the number of deleted rows; 0 if no row is old, or if another
        host is deleting rows.

        Raises SQLAlchemyError, ChainForked, RuntimeError.
        """
        now = self._clock.time()
        cutoff = now - self._keep_days * DAY_S
        with self._database.begin() as connection:
            batch = self._old(connection, cutoff, now) if self._alone(connection) else None
            head = None if batch is None else self._replace(connection, batch, now)
        if head is None or batch is None:
            self._next_at = self._clock.monotonic() + EVERY_S
            return 0
        self._heads.committed(head)
        return len(batch.rows)

    def _alone(self, connection: Connection) -> bool:
        if self._database.sqlite:
            return True
        return bool(connection.scalar(text("SELECT pg_try_advisory_xact_lock(:id)"), {"id": _LOCK}))

    def _old(self, connection: Connection, cutoff: float, now: float) -> _Batch | None:
        outside = connection.execute(
            select(*_ROW).where(ledger.c.chain == "", old(cutoff, now)).order_by(ledger.c.at, ledger.c.id).limit(BATCH)
        ).all()
        if rows := _removable(connection, [Row(*row) for row in outside]):
            return _Batch("", rows)
        for chain in connection.execute(select(ledger_chains).order_by(ledger_chains.c.begun_at)):
            if chain.id not in self._broken:
                start = Head(chain.id, 0, genesis(chain.id, chain.begun_at, chain.outside))
                if (batch := self._old_of(connection, start, cutoff, now)) is not None:
                    return batch
        return None

    def _old_of(self, connection: Connection, start: Head, cutoff: float, now: float) -> _Batch | None:
        """The oldest rows of a chain that can be replaced by sums; None if there are none. The rows end before the
        first row that is not old, or before the first gap in the numbers."""
        seq, hash = ledger.c.chain_seq, ledger.c.chain_hash
        found = connection.execute(
            select(*_ROW, seq, hash).where(ledger.c.chain == start.chain).order_by(seq).limit(BATCH)
        ).all()
        rows: list[Row] = []
        for number, row in enumerate(found):
            if row[-2] != found[0][-2] + number or cutoff <= row.at <= now + DAY_S:
                break  # a row far in the future counts as old: otherwise all later rows would stay
            rows.append(Row(*row[:-2]))
        rows = _removable(connection, rows)
        if not rows:
            return None
        first, last = found[0], found[len(rows) - 1]
        before = _hash_before(connection, start, first[-2])
        at = before
        for row in rows:
            at = None if at is None else following(at, canonical(row))
        if at is None or at != bytes(last[-1]):
            self._broken.add(start.chain)
            log.error(
                "old rows of chain %s differ from what was written, so they stay; see `thriftgate ledger verify`",
                start.chain,
            )
            return None
        return _Batch(start.chain, rows, first[-2], last[-2], before, at)

    def _replace(self, connection: Connection, batch: _Batch, now: float) -> Head:
        id = self._heads.next_id(connection)
        ids = [row.id for row in batch.rows]
        newer = ledger.c.supersedes
        replaced = {id for part in _parts(ids) for id in connection.scalars(select(newer).where(newer.in_(part)))}
        for part in _parts(ids):
            if connection.execute(delete(ledger).where(ledger.c.id.in_(part))).rowcount != len(part):
                raise RuntimeError("another process has removed rows meanwhile")
        # A stored day is found by its number of rows, and another day may get the same number later.
        connection.execute(delete(ledger_days).where(ledger_days.c.since <= max(row.at for row in batch.rows)))
        counting = [row for row in batch.rows if row.id not in replaced]
        sums = summed(id, counting, _split(connection, {row.request_id for row in counting}))
        if sums:
            names = [column.name for column in SUMS]
            lines = [{"rollup": id, **dict(zip(names, one, strict=True))} for one in sums]
            connection.execute(insert(ledger_sums), lines)
        return self._heads.append(
            connection,
            Rollup(
                id, now, batch.chain, batch.first, batch.last, batch.before, batch.after,
                len(batch.rows), len(sums), sums_hash(sums),
            ),
        )  # fmt: skip


def old(cutoff: float, now: float) -> ColumnElement[bool]:
    """The SQL condition for rows to replace: rows that began before `cutoff`, and rows with a wrong date more than a
    day in the future."""
    return or_(ledger.c.at < cutoff, ledger.c.at > now + DAY_S)


def count_old(connection: Connection, keep_days: int, now: float) -> int:
    """The number of rows that are old enough to be replaced by sums."""
    cutoff = now - keep_days * DAY_S
    return int(connection.scalar(select(func.count()).select_from(ledger).where(old(cutoff, now))) or 0)


def _parts(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + MANY] for start in range(0, len(ids), MANY)]


def _removable(connection: Connection, rows: list[Row]) -> list[Row]:
    """The rows that may be deleted: the beginning of `rows`, up to the first row that must stay. A row that replaced
    another row must stay as long as that other row. Otherwise the other row would count again."""
    gone: set[str] = set()
    for number, row in enumerate(rows):
        if row.supersedes and row.supersedes not in gone:
            stays = connection.scalar(select(ledger.c.id).where(ledger.c.id == row.supersedes))
            if stays is not None:
                return rows[:number]
        gone.add(row.id)
    return rows


def _hash_before(connection: Connection, start: Head, first: int) -> bytes | None:
    """The hash of the chain's entry with number `first` − 1, whose row was already deleted. None if the hash is
    unknown."""
    if first == 1:
        return start.hash
    table = ledger_rollups.c
    for column, which in (
        (table.chain_hash, and_(table.chain == start.chain, table.chain_seq == first - 1)),
        (table.after_hash, and_(table.of_chain == start.chain, table.last_seq == first - 1)),
    ):
        if (found := connection.scalar(select(column).where(which))) is not None:
            return bytes(found)
    return None


def _split(connection: Connection, requests: set[str]) -> set[str]:
    """The subset of `requests` that have further rows after the batch is deleted. The sums of these requests keep the
    request id, so that each request counts once."""
    found: set[str] = set()
    for part in _parts(sorted(requests)):
        for table in (ledger, ledger_sums):
            found.update(connection.scalars(select(table.c.request_id).where(table.c.request_id.in_(part))))
    return found
