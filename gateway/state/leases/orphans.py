"""Tracks the dead workers for which counters hold money, and whether their journals are drained.

A worker is drained when the ledger writer of its host has read its journal to the end, or when an operator declares the
journal lost. Both are recorded in the ledger's database. The database is read only while there are dead workers, and
never while a request waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.errors import StateUnavailable
from gateway.state.leases import orphaned_holds
from gateway.state.leases.counter import MOST, Lease
from gateway.state.leases.orphaned_holds import OrphanedHold
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

ALL_WORKERS = "*"
"""Stands for the names of all dead workers: each of them counts as drained."""
RECORD_S = 2.0
"""Seconds after which the holds of a dead worker are recorded in SQL. If the worker's host is running, the worker is
drained sooner."""
PATIENCE_S = 10.0
"""Seconds for which requests wait for the holds of a dead worker to end. After that, they no longer wait for these
holds."""
_FORGET_S = 60.0
_FRESH_S = 1.0
_SOONEST_S, _SLOWEST_S, _IDLE_S = 0.2, 5.0, 15.0
_RETRY_S = 1.0


class DeadWorkers(Protocol):
    """The interface through which `Leases` tracks dead workers."""

    drained: str
    """Names of drained workers, separated by spaces."""

    def note(self, lease: Lease, names: str) -> int:
        """Record that the counter `lease` has units reserved for dead workers. `names`: `NAME=UNITS NAME=UNITS`.

        Returns the number of units that are older than `PATIENCE_S` seconds.
        """
        ...

    async def refresh(self, max_age_s: float) -> None:
        """Read which workers are drained. Does nothing if they were read within the last `max_age_s` seconds.
        Raises StateUnavailable.
        """
        ...

    def recorded(self, lease: Lease) -> str:
        """The recorded holds of a counter for dead workers, as text: ` NAME=UNITS NAME=UNITS`."""
        ...

    def stats(self) -> dict[str, int | float | str]: ...

    async def run(self) -> None:
        """Keep `drained` (the names of the drained workers) up to date until cancelled."""
        ...


class AllDrained:
    """Implements DeadWorkers for a process that reads all journals itself when it reads a counter's starting value. So
    all dead workers count as drained (their spend is in the ledger).
    """

    drained = ALL_WORKERS

    def note(self, lease: Lease, names: str) -> int:
        return 0

    async def refresh(self, max_age_s: float) -> None:
        return

    def recorded(self, lease: Lease) -> str:
        return ""

    def stats(self) -> dict[str, int | float | str]:
        return {}

    async def run(self) -> None:
        return


class Orphans:
    """Implements DeadWorkers with the records about dead workers in the ledger's database."""

    def __init__(
        self,
        database: Database,
        worker: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`worker`: this worker's name."""
        self._database, self._worker, self._monotonic, self._clock = database, worker, monotonic, clock
        self.drained = ""
        self._drained: set[str] = set()
        self._seen: dict[str, tuple[float, float]] = {}
        """Dead worker → (first, last) time at which it was reported as dead, in monotonic seconds."""
        self._unrecorded: dict[tuple[str, str], OrphanedHold] = {}
        self._recorded: dict[str, list[OrphanedHold]] = {}
        """Key of a counter → its recorded holds."""
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()

    def note(self, lease: Lease, names: str) -> int:
        now, old = self._monotonic(), 0
        for each in names.split():
            name, _, amount = each.partition("=")
            if name not in self._seen:
                self._news.set()
            first = self._noticed_at(name, now)
            self._seen[name] = first, now
            old += int(amount) if now - first > PATIENCE_S else 0
            if lease.limit < MOST and name not in self._drained and (name, lease.key) not in self._unrecorded:
                since = self._clock() - (now - first)
                hold = OrphanedHold(name, lease.key, lease.tag, int(amount), lease.limit, since)
                self._unrecorded[name, lease.key] = hold
        return old

    def recorded(self, lease: Lease) -> str:
        known = self._recorded.get(lease.key, ())
        return "".join([f" {one.worker}={one.units}" for one in known if one.worker != self._worker])

    def stats(self) -> dict[str, int | float | str]:
        return {"dead_workers": sum(name not in self._drained for name in self._seen)}

    def troubles(self) -> list[str]:
        """Sentences for /health. That page is public, so the sentences name no host and no team."""
        workers = {one.worker for holds in self._recorded.values() for one in holds}
        if not workers:
            return []
        return [f"budgets hold money for {len(workers)} dead worker(s) that are not drained, see `thriftgate doctor`"]

    async def refresh(self, max_age_s: float = _FRESH_S) -> None:
        async with self._lock:
            now = self._monotonic()
            if now - self._read_at <= max_age_s:
                return
            names, due = frozenset(self._seen), self._due(now)
            try:
                found = await self._database.run(partial(_read, self._worker, names), writes=False)
                if self._worker in found.gone or any(hold.worker not in found.gone for hold in due):
                    found = await self._database.run(partial(_write, self._worker, names, due))
            except SQLAlchemyError as error:
                raise StateUnavailable(f"which workers are drained cannot be read: {error}") from error
            self._learn(found, now)

    def _due(self, now: float) -> list[OrphanedHold]:
        """The holds for dead workers that are old enough to be recorded, and are not recorded yet."""
        known = {(one.worker, one.counter) for holds in self._recorded.values() for one in holds}
        return [
            hold
            for place, hold in self._unrecorded.items()
            if place not in known and "@" in hold.worker and now - self._noticed_at(hold.worker, now) > RECORD_S
        ]

    def _noticed_at(self, name: str, now: float) -> float:
        return self._seen.get(name, (now, now))[0]

    def _learn(self, found: _Found, now: float) -> None:
        self._read_at = now
        self._seen = {name: times for name, times in self._seen.items() if now - times[1] < _FORGET_S}
        older = {
            name for name in self._seen if "@" not in name
        }  # workers of older versions, whose journals lack the worker's name
        self._drained = older | (found.gone & self._seen.keys())
        self.drained = " ".join(sorted(self._drained))
        self._recorded = {}
        for one in found.holds:
            self._recorded.setdefault(one.counter, []).append(one)
        self._unrecorded = {
            place: hold
            for place, hold in self._unrecorded.items()
            if hold.worker in self._seen and hold.worker not in self._drained
        }

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            try:
                await self.refresh(_SOONEST_S / 2)
            except StateUnavailable as error:
                log.debug("%s", error)
                await asyncio.sleep(_RETRY_S)
            except Exception:  # the task must continue: otherwise, money held for dead workers would never be released
                log.exception("dead workers")
                await asyncio.sleep(_RETRY_S)

    def _pause_s(self) -> float:
        """Seconds until the next read of the records. The pause is short after a worker's death, because most workers
        are drained soon. Then the pause grows."""
        now = self._monotonic()
        ages = [now - first for name, (first, _) in self._seen.items() if name not in self._drained]
        return min(_SLOWEST_S, max(_SOONEST_S, min(ages) / 4)) if ages else _IDLE_S


@dataclass(frozen=True, slots=True)
class _Found:
    gone: set[str]
    """The drained workers among those that were asked for. Also this worker itself, if it is recorded as dead."""
    holds: list[OrphanedHold]


def _read(worker: str, names: frozenset[str], connection: Connection) -> _Found:
    holds = orphaned_holds.held(connection)
    gone = orphaned_holds.which_drained(connection, {*names, worker})
    return _Found(gone | {worker for one in holds if one.worker == worker}, holds)


def _write(worker: str, names: frozenset[str], due: Sequence[OrphanedHold], connection: Connection) -> _Found:
    orphaned_holds.mark_alive(connection, worker)
    gone = orphaned_holds.which_drained(connection, names)
    orphaned_holds.record(connection, (hold for hold in due if hold.worker not in gone))
    return _Found(gone, orphaned_holds.held(connection))
