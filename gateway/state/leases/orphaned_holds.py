"""SQL records about dead workers. They say which dead workers are drained (all their spend is in the ledger), and how
much budget is held for those that are not drained.

The records are in the ledger's database for two reasons: they must survive the state server, and the ledger's writer
marks a worker as drained in the same transaction as its last rows. Call all functions in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from sqlalchemy import Connection, delete, insert, select, text

from gateway.domain.units import NANO_PER_USD
from gateway.state.sql.tables import audit, drained_workers, orphaned_holds

_KEEP_S = 90 * 86_400.0
"""Seconds for which a drained worker is remembered. All counters forget the lease of a dead worker sooner."""
_MANY = 500


@dataclass(frozen=True, slots=True)
class OrphanedHold:
    """The units that one counter holds for one dead worker."""

    worker: str
    counter: str
    """The counter's key on the state server."""
    tag: str
    """The counter's tag: the team or `organisation NAME`. In the tag of an end user's counter, a digest follows."""
    units: int
    """Units held, in nano-dollars or tokens."""
    limit_units: int
    since: float
    """Unix time at which the worker's death was first noticed."""

    @property
    def host(self) -> str:
        return host_of(self.worker)

    @property
    def amount(self) -> str:
        """The amount for display: `12.3456 USD of 500 USD`, or `300 of 1000 tokens`."""
        if self._parts[2:3] == ["tokens"]:
            return f"{self.units} of {self.limit_units} tokens"
        held, limit = (Decimal(units) / NANO_PER_USD for units in (self.units, self.limit_units))
        return f"{held:.4f} USD of {limit.normalize():f} USD"

    @property
    def budget(self) -> str:
        """The budget for display: `team search, month from 2026-01-01`."""
        parts = self._parts
        if len(parts) < 7:
            return self.tag
        owner = self.tag if self.tag.startswith("organisation ") else f"team {self.team}"
        level = {"team": "", "organisation": "", "end_user": ", an end user", "session": ", a session"}.get(
            parts[1], f", {parts[1]}"
        )
        begun = datetime.fromtimestamp(int(parts[-1]), UTC).date()
        return f"{owner}{level}, {parts[4]} from {begun}"

    @property
    def team(self) -> str:
        """The team's name; empty for an organisation's budget."""
        return "" if self.tag.startswith("organisation ") else self.tag.partition(" ")[0]

    @property
    def _parts(self) -> list[str]:
        """The parts of the counter's name: `budget`, level, meter, position, window, time zone, start of the window."""
        name = self.counter.partition("}:lease:")[2].split(":")
        if len(name) < 7:
            return name
        return [name[0], ":".join(name[1:-5]), *name[-5:]]


def host_of(worker: str) -> str:
    """The host name in a worker's name; empty for workers of older versions, whose names have none."""
    return worker.partition("@")[2]


def drained(connection: Connection, worker: str, *, by: str = "", now: float | None = None) -> None:
    """Record that all spend of `worker` is in the ledger. `by`: the operator who has declared the worker's journal
    lost, or empty.
    """
    now = time.time() if now is None else now
    connection.execute(
        text("INSERT INTO drained_workers (worker, at, actor) VALUES (:worker, :at, :actor) ON CONFLICT DO NOTHING"),
        {"worker": worker, "at": now, "actor": by},
    )
    connection.execute(delete(orphaned_holds).where(orphaned_holds.c.worker == worker))
    connection.execute(delete(drained_workers).where(drained_workers.c.at < now - _KEEP_S))


def which_drained(connection: Connection, workers: Collection[str]) -> set[str]:
    """The members of `workers` that are drained (all their spend is in the ledger)."""
    names, found, c = sorted(workers), set[str](), drained_workers.c
    for start in range(0, len(names), _MANY):
        found.update(connection.scalars(select(c.worker).where(c.worker.in_(names[start : start + _MANY]))))
    return found


def held(connection: Connection) -> list[OrphanedHold]:
    """The holds for dead workers that are not drained, oldest first."""
    c = orphaned_holds.c
    rows = connection.execute(
        select(c.worker, c.counter, c.tag, c.units, c.limit_units, c.since)
        .where(c.worker.not_in(select(drained_workers.c.worker)))
        .order_by(c.since, c.worker, c.counter)
    )
    return [OrphanedHold(*row) for row in rows]


def record(connection: Connection, holds: Iterable[OrphanedHold]) -> None:
    """Store those of `holds` that are not stored yet."""
    values = [
        {name: getattr(one, name) for name in ("worker", "counter", "tag", "units", "limit_units", "since")}
        for one in holds
    ]
    if values:
        connection.execute(
            text(
                "INSERT INTO orphaned_holds (worker, counter, tag, units, limit_units, since) "
                "VALUES (:worker, :counter, :tag, :units, :limit_units, :since) ON CONFLICT DO NOTHING"
            ),
            values,
        )


def mark_alive(connection: Connection, worker: str) -> None:
    """Remove all records of `worker`, because it is running."""
    for table in (orphaned_holds, drained_workers):
        connection.execute(delete(table).where(table.c.worker == worker))


def release(connection: Connection, which: str, actor: str) -> Sequence[OrphanedHold]:
    """Release the holds for all dead workers whose name or host is `which`. Each released hold gets an audit entry.
    Returns the released holds."""
    found = [one for one in held(connection) if which in (one.worker, one.host)]
    now = time.time()
    for worker in sorted({one.worker for one in found}):
        drained(connection, worker, by=actor, now=now)
    for one in found:
        detail = f"{one.amount} held for {one.budget}"
        values = {"actor": actor, "action": "ledger.release", "subject": one.worker, "detail": detail}
        connection.execute(insert(audit).values(at=now, **values))
    return found
