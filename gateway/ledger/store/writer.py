"""Moves the rows of all journals of this host into the SQL ledger (this is called draining). Each row is inserted
exactly once, even if the process crashes."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import orjson
from sqlalchemy import Connection, delete, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from gateway.domain.protocols import Clock
from gateway.ledger.journal import segments, slots
from gateway.ledger.journal.reader import JournalReader
from gateway.ledger.journal.segments import Segment
from gateway.ledger.rows import FIELDS, LEAST, Row, Values
from gateway.ledger.store import anchor
from gateway.ledger.store.chain_heads import ChainForked, ChainHeads
from gateway.ledger.store.insert_ignore import insert_once, known
from gateway.ledger.store.retention import Retention
from gateway.runtime.off_loop import OffLoop
from gateway.state.leases import orphaned_holds
from gateway.state.sql.database import Database
from gateway.state.sql.tables import journal_offsets, ledger

log = logging.getLogger(__name__)

INTERVAL_S = 0.3
NICE = 5
"""How much lower the priority of the thread that drains is than that of the workers. If all cores are busy, a drain
delays requests less, and still gets a quarter of a core's time; it needs a sixteenth of what the workers need."""
SLOWEST_S = 10.0
"""Maximum seconds between attempts while the database does not answer."""
LOUD_AFTER_S = 60.0
"""Seconds without success from which on errors are logged in place of warnings."""
_SAVE_PLACE = text(
    "INSERT INTO journal_offsets (lane, segment, position, updated_at) "
    "VALUES (:lane, :segment, :position, :updated_at) ON CONFLICT (lane) DO UPDATE "
    "SET segment = excluded.segment, position = excluded.position, updated_at = excluded.updated_at"
)
"""Written as SQL text that SQLite and PostgreSQL understand. A SQLAlchemy expression would import both dialects."""
_CHAIN = ("chain_seq", "chain_hash")
_CLASSED = (*FIELDS[: LEAST + 1], FIELDS[-1])
"""The columns of a usual row with a traffic class. The traffic class is the last column. All columns that are not
listed have their defaults."""
_FIRST = {length: tuple(FIELDS[:length]) for length in range(LEAST, len(FIELDS) + 1)}
_REST = {
    fields: {name: Row._field_defaults[name] for name in FIELDS if name not in fields}
    for fields in (*_FIRST.values(), _CLASSED)
}
"""Columns of a row → defaults of the other columns."""
_UNUSUAL = tuple(Row._field_defaults[name] for name in FIELDS[LEAST + 1 : -1])


class _Twice(Exception):
    """Raised if the id of a row is already in the ledger, or if two rows have the same id."""


class Writer:
    """Moves the rows of a host's journals into the SQL ledger. One process per host does this; the other processes wait
    for the lock. `on_rows`: called on the event loop with the new rows; after a crash, one call may be missing."""

    def __init__(
        self,
        directory: Path,
        database: Database,
        *,
        on_rows: Callable[[list[Row]], None] = lambda rows: None,
        interval_s: float = INTERVAL_S,
        keep_days: int | None = None,
        clock: Clock = time,
    ) -> None:
        """`keep_days`: age in days at which rows are replaced by sums; None: rows are never replaced."""
        self._directory, self._database, self._on_rows = directory, database, on_rows
        self._interval_s, self._clock = interval_s, clock
        self._heads = ChainHeads(anchor.beside(directory), database, clock)
        self._retention = None if keep_days is None else Retention(database, self._heads, keep_days, clock)
        self._lanes: dict[str, JournalReader] = {}
        self._replayed: set[str] = set()
        self._fresh: list[Row] = []
        self._host_lock = -1
        self._thread, self._draining = OffLoop(name="ledger", nice=NICE), threading.Lock()
        self._drained = self._refused = self._errors = self._damaged = self._retained = 0
        self._behind_since: float | None = None
        self._drained_at = clock.monotonic()
        self._loud = False

    async def run(self) -> None:
        """Drain the journals until cancelled. After an error, the pause doubles up to `SLOWEST_S` seconds."""
        wait = self._interval_s
        while True:
            try:
                await self.drain_once()
            except Exception as error:  # the journal keeps the spend until the error is fixed
                self._failed(error)
                wait = min(wait * 2, SLOWEST_S)
            else:
                self._succeeded()
                wait = self._interval_s
            await asyncio.sleep(wait)

    async def drain_once(self) -> int:
        """Drain all journals once. Returns the number of new rows; 0 while another process is the writer. Raises
        SQLAlchemyError, OSError."""
        try:
            return await self._thread.run(self._drain)
        finally:
            fresh, self._fresh = self._fresh, []
            if fresh:
                self._on_rows(fresh)

    async def retain_all(self) -> int:
        """Replace all old rows by sums. Returns their number; 0 while another process is this host's writer.

        Raises SQLAlchemyError.
        """
        return await self._thread.run(self._retain_all)

    def _retain_all(self) -> int:
        with self._draining:
            if self._retention is None or not self._acquire():
                return 0
            while step := self._retention.step():
                self._retained += step
            return self._retained

    async def aclose(self) -> None:
        """Wait until the present drain ends, and release the host's lock."""
        await self._thread.run(self._release)
        self._thread.close()

    def _release(self) -> None:
        with self._draining:
            if self._host_lock >= 0:
                self._anchor(now=True)
                os.close(self._host_lock)
                self._host_lock = -1

    def _drain(self) -> int:
        with self._draining:
            if not self._acquire():
                return 0
            before = self._drained
            try:
                try:
                    self._drain_all()
                except ChainForked as error:
                    log.error("the ledger was written behind its writer's back (%s); a new chain begins", error)
                    self._start_over(fork=True)
                    self._drain_all()
            except BaseException:
                self._start_over()
                raise
            self._retain()
            self._anchor()
            return self._drained - before

    def _start_over(self, *, fork: bool = False) -> None:
        """Read the state from the database again, because the state in memory may contain more than was committed.
        `fork`: begin a new hash chain."""
        self._lanes.clear()
        with suppress(OSError, ValueError, SQLAlchemyError):
            self._heads.lost(fork=fork)

    def _retain(self) -> None:
        """Replace a batch of old rows by sums. If this fails, the rows stay, and the next drain tries again."""
        if self._retention is None or not self._retention.due():
            return
        try:
            self._retained += self._retention.step()
        except (SQLAlchemyError, ChainForked, RuntimeError) as error:
            log.warning("old rows of the ledger cannot be replaced by sums, they stay until they can: %s", error)
            self._start_over(fork=isinstance(error, ChainForked))

    def _anchor(self, *, now: bool = False) -> None:
        """Write the anchor file. A disk error is only logged, because it must not stop the drain. The next drain tries
        again."""
        try:
            self._heads.anchor(now=now)
        except (OSError, ValueError, SQLAlchemyError) as error:
            log.error("the anchor of the ledger's chain cannot be written: %s", error)

    def _acquire(self) -> bool:
        if self._host_lock >= 0:
            return True
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._directory / "writer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._host_lock = fd
        return True

    def _drain_all(self) -> None:
        with ExitStack() as locks:
            found, dead = {}, set()
            for name, files in segments.lanes(self._directory).items():
                found[name] = files
                if locks.enter_context(segments.ended(self._directory, files[-1])):
                    dead.add(name)
            self._resume(name for name in found if name not in self._lanes)
            while moved := self._gather(found):
                lanes = [lane for lane, _ in moved]
                replay = any(lane.name not in self._replayed for lane in lanes)
                self._save([row for _, rows in moved for row in rows], lanes, replay)
            self._replayed.update(found)
            for name in dead:
                self._bury(self._lanes.pop(name), found[name])
        for name in found.keys() - dead:
            self._shorten(found[name], self._lanes[name].resume[0])
        for name in self._lanes.keys() - found.keys():
            del self._lanes[name]

    def _resume(self, names: Iterable[str]) -> None:
        """Load the saved positions of the lanes in `names`. A lane is the journal of one worker process. None of these
        lanes may be in memory yet."""
        new = list(names)
        if not new:
            return
        self._replayed.difference_update(new)
        table = journal_offsets.c
        with self._database.read() as connection:
            saved = connection.execute(
                select(table.lane, table.segment, table.position).where(table.lane.in_(new))
            ).all()
        places = {lane: (segment, position) for lane, segment, position in saved}
        self._lanes.update({name: JournalReader(name, places.get(name, (0, 0))) for name in new})

    def _gather(self, found: dict[str, list[Segment]]) -> list[tuple[JournalReader, list[Values]]]:
        """Read the next piece of each worker's journal. Journals with nothing to read are omitted."""
        moved = []
        for name, files in found.items():
            lane = self._lanes[name]
            before, damaged = lane.place, lane.damaged
            rows = lane.read(files)
            self._damaged += lane.damaged - damaged
            if lane.place != before:
                moved.append((lane, rows))
        return moved

    def _save(self, rows: Sequence[Values], lanes: Sequence[JournalReader], replay: bool) -> None:
        """Insert the rows, and save the positions of `lanes` (the workers' journals), in one transaction. Without rows,
        nothing is saved. `replay`: whether some rows may be in the ledger already."""
        if not rows:
            return
        try:
            try:
                fresh = self._commit(rows, lanes, replay)
            except _Twice:
                fresh = self._commit(rows, lanes, replay=True)
        except (StatementError, OverflowError) as error:
            if isinstance(error, DBAPIError) and not isinstance(error, DataError | IntegrityError):
                raise
            _check(error)
            fresh = self._save_each(rows)
        self._drained += len(fresh)
        self._fresh += map(Row.of, fresh)

    def _commit(self, rows: Sequence[Values], lanes: Sequence[JournalReader], replay: bool) -> Sequence[Values]:
        """Insert the rows that are not in the ledger yet, as entries of the chain, and return them. `replay`: whether
        some rows may already be in the ledger; if it is false, such a row raises _Twice."""
        with self._database.begin() as connection:
            if replay:
                unique = {row[0]: row for row in reversed(rows)}  # the first row with an id counts
                there = known(connection, ledger, unique)
                rows = [row for row in rows if row[0] not in there and unique[row[0]] is row]
            chained, head = self._heads.extended(connection, rows)
            inserted = 0
            for fields, group in _alike(chained).items():
                rest = {**_REST[fields], "chain": head.chain}
                inserted += insert_once(connection, ledger, (*fields, *_CHAIN), group, rest)
            if inserted != len(rows):
                raise _Twice
            if lanes:
                _save_places(connection, lanes, self._clock.time())
        self._heads.committed(head)
        return rows

    def _save_each(self, rows: Sequence[Values]) -> list[Values]:
        """Insert each row in its own transaction, so that a refused row does not stop the others. Values are cut to the
        sizes of their columns."""
        fresh: list[Values] = []
        for row in map(_fitted, rows):
            try:
                fresh += self._commit([row], (), replay=True)
            except (DataError, IntegrityError, OverflowError) as error:
                _check(error)
                self._refused += 1
                log.error("the ledger refused a row, kept in refused.jsonl: %s", error)
                with (self._directory / "refused.jsonl").open("ab") as file:
                    file.write(orjson.dumps(row._asdict(), default=str) + b"\n")
        return fresh

    def _bury(self, lane: JournalReader, files: list[Segment]) -> None:
        """Insert rows for the open attempts of a dead worker, and delete the worker's journal. Then mark the worker's
        leases as drained: its spend is in the ledger now."""
        progress = slots.path_of(self._directory, lane.name)
        self._save(lane.orphans(slots.read(progress)), [lane], replay=True)
        with self._database.begin() as connection:
            connection.execute(delete(journal_offsets).where(journal_offsets.c.lane == lane.name))
            if worker := segments.leases_as(lane.name):
                orphaned_holds.drained(connection, worker)
        progress.unlink(missing_ok=True)  # before the journal: without a journal, this file would never be found
        self._delete(files)

    def _shorten(self, files: list[Segment], needed: int) -> None:
        """Delete the segments with numbers below `needed`."""
        self._delete([segment for segment in files[:-1] if segment.number < needed])

    def _delete(self, files: list[Segment]) -> None:
        if files:
            self._database.checkpoint()  # a power cut must not undo the insertion of rows whose journal is deleted
        for segment in files:
            segment.path.unlink(missing_ok=True)

    def _failed(self, error: Exception) -> None:
        self._errors += 1
        now = self._clock.monotonic()
        if self._behind_since is None:
            self._behind_since = now
            expected = isinstance(error, SQLAlchemyError | OSError)
            log.warning(
                "the journal cannot be drained into the ledger and keeps the spend until it can: %s",
                error,
                exc_info=None if expected else error,
            )
        elif not self._loud and now - self._behind_since > LOUD_AFTER_S:
            self._loud = True
            log.error("the journal has not been drained for %.0f s: %s", now - self._behind_since, error)

    def _succeeded(self) -> None:
        if self._behind_since is not None:
            log.info("the journal is drained into the ledger again")
        self._behind_since, self._loud = None, False
        self._drained_at = self._clock.monotonic()

    def stats(self) -> dict[str, int | float | str]:
        behind = 0.0 if self._behind_since is None else self._clock.monotonic() - self._behind_since
        return {
            "drained": self._drained,
            "refused": self._refused,
            "damaged": self._damaged,
            "retained": self._retained,
            "errors": self._errors,
            "lanes": len(self._lanes),
            "open": sum(len(lane.open) for lane in list(self._lanes.values())),  # a drain may be in progress
            "lag_s": round(behind, 3),
            "drained_ago_s": round(self._clock.monotonic() - self._drained_at, 3),
        }


def _check(error: Exception) -> None:
    """Raise ChainForked if the database refused the row because its number in the chain already exists."""
    if isinstance(error, IntegrityError) and "chain_seq" in str(error.orig):
        raise ChainForked("another row has the chain's next number") from error


def _save_places(connection: Connection, lanes: Sequence[JournalReader], now: float) -> None:
    values = [
        {"lane": lane.name, "segment": lane.resume[0], "position": lane.resume[1], "updated_at": now} for lane in lanes
    ]
    connection.execute(_SAVE_PLACE, values)


def _alike(chained: Sequence[Values]) -> dict[tuple[str, ...], list[Values]]:
    """Group rows by the columns to insert: columns → rows with values for these columns and for `_CHAIN`. All other
    columns of these rows have their defaults."""
    alike: dict[tuple[str, ...], list[Values]] = {}
    for row in chained:
        length = len(row) - len(_CHAIN)
        if length == len(FIELDS) and row[LEAST + 1 : length - 1] == _UNUSUAL:
            alike.setdefault(_CLASSED, []).append((*row[: LEAST + 1], *row[length - 1 :]))
        else:
            alike.setdefault(_FIRST[length], []).append(row)
    return alike


def _fitted(values: Values) -> Row:
    """The row, with each text cut to the length of its column. NUL characters are removed, because PostgreSQL refuses
    them."""
    fitted = Row.of(values)._asdict()
    for name, value in fitted.items():
        if isinstance(value, str):
            fitted[name] = value.replace("\0", "")[: getattr(ledger.c[name].type, "length", None)]
    return Row(**fitted)
