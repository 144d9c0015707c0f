"""Stores the head (newest entry) of the chain to which this host writes, in the database and in the anchor file."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, func, insert, select, update

from gateway.domain.protocols import Clock
from gateway.ledger.rows import Values
from gateway.ledger.store import anchor
from gateway.ledger.store.chain import Head, Rollup, following, genesis, linked
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger, ledger_chains, ledger_rollups

log = logging.getLogger(__name__)

ANCHOR_S = 1.0
"""Minimum seconds between writes of the anchor file. Each write waits for the disk."""
LOG_S = 3600.0
"""Seconds between log lines with the head of the chain. Logs are stored elsewhere, so someone who alters the ledger
cannot alter them."""


class ChainForked(Exception):
    """Raised if another writer has changed the chain in the database. Then this writer must begin a new chain."""


class ChainHeads:
    """The head (newest entry) of this host's chain. Use this object only in the writer's thread. A chain that cannot be
    continued is left unchanged, and a new chain begins."""

    def __init__(self, path: Path, database: Database, clock: Clock) -> None:
        self._path, self._database, self._clock = path, database, clock
        self._head: Head | None = None
        self._anchored: Head | None = None
        self._anchored_at = self._logged_at = float("-inf")
        self._anew = self._resumed = False

    def extended(self, connection: Connection, rows: Sequence[Values]) -> tuple[list[Values], Head]:
        """Add `rows` to the hash chain. Returns the rows with their numbers and hashes, and the chain's new head. The
        caller must insert the rows in the same transaction. Raises ChainForked."""
        before = self._current(connection)
        chained, head = linked(before, rows)
        self._move(connection, before, head)
        return chained, head

    def append(self, connection: Connection, make: Rollup) -> Head:
        """Store the roll-up `make` as the chain's next entry. The id of `make` must be the result of
        `next_id`. Raises ChainForked."""
        before = self._current(connection)
        head = Head(before.chain, before.seq + 1, following(before.hash, make.canonical()))
        self._move(connection, before, head)
        values = {name: getattr(make, name) for name in make.__slots__}
        place = {"chain": head.chain, "chain_seq": head.seq, "chain_hash": head.hash}
        connection.execute(insert(ledger_rollups).values(**values, **place))
        return head

    def next_id(self, connection: Connection) -> str:
        """The id of the roll-up that is stored next in the chain."""
        head = self._current(connection)
        return f"{head.chain}-{head.seq + 1}"

    def committed(self, head: Head) -> None:
        """Store the new head. Call this after the transaction with `head` was committed."""
        self._head, self._anew = head, False

    def lost(self, *, fork: bool = False) -> None:
        """Forget the head, because the last transaction may not have been committed. The head is read again before the
        next entry. `fork`: write the old head to the anchor file, and begin another chain. Raises OSError or ValueError
        if the anchor file cannot be written."""
        try:
            if fork:
                self.anchor(now=True)
        finally:
            self._head, self._anew = None, self._anew or fork

    def anchor(self, *, now: bool = False) -> None:
        """Write the head to the anchor file if the head has changed. `now`: write at once. If it is false, the file is
        written at most once every `ANCHOR_S` seconds.

        Raises OSError, ValueError, SQLAlchemyError.
        """
        if not self._resumed:  # an earlier writer may have died before it wrote its anchor
            with self._database.read() as connection:
                self._head = self._head or self._found(connection)
            self._resumed = True
        head = self._head
        if head is None or head == self._anchored:
            return
        clock = self._clock.monotonic()
        if not now and clock - self._anchored_at < ANCHOR_S:
            return
        self._sync()
        anchor.write(self._path, head, self._clock.time())
        self._anchored, self._anchored_at = head, clock
        if now or clock - self._logged_at >= LOG_S:
            self._logged_at = clock
            log.info("the ledger's chain %s: entry %d has the hash %s", head.chain, head.seq, head.hash.hex())

    def _sync(self) -> None:
        """Flush the file of SQLite to disk. Otherwise, after a power cut, the anchor file could be newer than the
        database."""
        file = self._database.engine.url.database if self._database.sqlite else None
        if file:
            log_file = Path(f"{file}-wal")
            fd = os.open(log_file if log_file.exists() else file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _current(self, connection: Connection) -> Head:
        if self._head is not None:
            return self._head
        found = None if self._anew else self._found(connection)
        if found is None:
            found = self._begin(connection)
        # Stored in `_head` only after the commit (see `committed`).
        return found

    def _found(self, connection: Connection) -> Head | None:
        """The head of the chain that the anchor file names. None if the database does not have this chain, or if the
        chain's rows do not match the file."""
        try:
            known = anchor.read(self._path)
        except ValueError as error:
            log.error("%s; a new chain begins", error)
            self._path.replace(self._path.with_suffix(".damaged"))
            return None
        if known is None:
            return None
        anchored = known.heads[known.current]
        row = connection.execute(
            select(ledger_chains.c.seq, ledger_chains.c.hash).where(ledger_chains.c.id == anchored.chain)
        ).one_or_none()
        head = None if row is None else Head(anchored.chain, row.seq, bytes(row.hash))
        if head is not None and (head.seq > anchored.seq or head == anchored):
            return head
        if anchored.seq == 0:  # the chain's first transaction was not committed
            return None
        log.error(
            "the ledger lacks entry %d of chain %s, which its anchor has; a new chain begins, "
            "`thriftgate ledger verify` shows what is missing",
            anchored.seq,
            anchored.chain,
        )
        return None

    def _begin(self, connection: Connection) -> Head:
        chain, at = os.urandom(8).hex(), self._clock.time()
        outside = outside_rows(connection)
        head = Head(chain, 0, genesis(chain, at, outside))
        connection.execute(insert(ledger_chains).values(id=chain, begun_at=at, outside=outside, seq=0, hash=head.hash))
        # Before the commit: a crash after the commit would leave a chain without an anchor.
        anchor.write(self._path, head, at)
        return head

    def _move(self, connection: Connection, before: Head, head: Head) -> None:
        table = ledger_chains.c
        moved = connection.execute(
            update(ledger_chains)
            .where(table.id == before.chain, table.seq == before.seq, table.hash == before.hash)
            .values(seq=head.seq, hash=head.hash)
        )
        if moved.rowcount != 1:
            raise ChainForked(f"chain {before.chain} is no longer at entry {before.seq}")


def outside_rows(connection: Connection) -> int:
    """The number of rows that are in no chain, because they are older than the first chain. Rows that were deleted
    since then are included."""
    there = connection.scalar(select(func.count()).select_from(ledger).where(ledger.c.chain == ""))
    gone = connection.scalar(select(func.sum(ledger_rollups.c.rows)).where(ledger_rollups.c.of_chain == ""))
    return int(there or 0) + int(gone or 0)
