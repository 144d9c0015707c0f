"""Adds idle costs to the ledger: the cost of the time in which a machine with an hourly price was unused. The costs of
a machine's attempts and idle rows add up to the machine's price."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import orjson
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.protocols import Clock
from gateway.domain.units import usd_to_pico
from gateway.ledger.journal import segments
from gateway.ledger.rows import FIELDS, Row
from gateway.ledger.store.entries import IDLE, entries, spent
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger

log = logging.getLogger(__name__)

TEAM = "(machines)"
"""The team of idle rows. No real team can have this name."""
HOUR_S = 3600
GRACE_S = 900.0
"""Seconds to wait after the end of an hour before its idle cost is booked. Within this time, attempts end and their
rows reach the ledger."""
LOOK_BACK_H = 48
"""Number of past hours whose idle rows are corrected if attempts reach the ledger late. Attempts that arrive even later
do not change idle rows."""
EVERY_S = 300.0
SEEN = "machines.json"


class Idle:
    """Writes idle rows (the cost of unused machine time) into a journal of its own. One instance per host.

    A machine's `billing` decides in which hours idle rows are written:
    - on_demand: hours in which this gateway ran.
    - spot: hours in which the gateway ran and the machine answered.
    - reserved: every hour since the machine was configured.
    - busy: never.
    """

    def __init__(self, directory: Path, database: Database, backends: Sequence[Backend], clock: Clock = time) -> None:
        self._directory, self._database, self._clock = directory, database, clock
        self._machines = {
            backend.name: (backend, backend.price)
            for backend in backends
            if backend.price is not None and backend.price.machine_hour_usd and backend.price.billing != "busy"
        }

    async def run(self) -> None:
        """Write idle rows until cancelled. After a failure, try again later."""
        while self._machines:
            try:
                await self.write_once()
            except (SQLAlchemyError, OSError) as error:
                log.warning("idle machine time cannot be booked: %s", error)
            await asyncio.sleep(EVERY_S)

    async def write_once(self) -> int:
        """Write the idle rows that are due, and return their number. Raises SQLAlchemyError, OSError."""
        now = self._clock.time()
        seen = await asyncio.to_thread(self._see, int(now // HOUR_S))
        rows = await self._database.run(partial(self._due, seen=seen, now=now), writes=False)
        if rows:
            await asyncio.to_thread(self._journal, rows)
        return len(rows)

    def _see(self, hour: int) -> dict[str, list[int]]:
        """Store that the gateway ran in `hour`. Returns machine → the hours in which the gateway ran, ascending. Hours
        are numbers since 1970."""
        path = self._directory / SEEN
        try:
            known: dict[str, list[int]] = orjson.loads(path.read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            known = {}
        for name in self._machines:
            hours = known.get(name, [hour])
            recent = {one for one in hours if one >= hour - LOOK_BACK_H} | {hour}
            known[name] = [hours[0], *sorted(recent - {hours[0]})]
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(orjson.dumps(known))
        fresh.replace(path)
        return known

    def _due(self, connection: Connection, seen: dict[str, list[int]], now: float) -> list[Row]:
        last = int((now - GRACE_S) // HOUR_S) - 1
        rows = []
        for name, (backend, price) in self._machines.items():
            for hour in _hours(seen[name], price, last):
                row = _row(connection, backend, price, hour)
                if row is not None:
                    rows.append(row)
        return rows

    def _journal(self, rows: Sequence[Row]) -> None:
        segment = segments.Segment.at(self._directory, segments.new_lane("idle"), 1)
        fd = segments.create(segment, FIELDS)
        try:
            os.write(fd, b"".join(segments.encode({"close": row}) for row in rows))
        finally:
            segments.retire(fd)


def _hours(seen: list[int], price: PriceEntry, last: int) -> Iterator[int]:
    """Yield the hours that may need an idle row, or a correction of an idle row. Hours are counted since 1970. `seen`:
    hours in which the gateway ran. `last`: the last hour to consider."""
    first = max(seen[0], last - LOOK_BACK_H + 1)
    known = set(seen)
    yield from (hour for hour in range(first, last + 1) if price.billing == "reserved" or hour in known)


def _row(connection: Connection, backend: Backend, price: PriceEntry, hour: int) -> Row | None:
    """The idle row of `hour`. Its cost is the machine's hourly price minus the cost of the machine's attempts, and may
    be negative. None if the difference is 0, or if `billing` excludes the hour."""
    c, start = entries.c, float(hour * HOUR_S)
    ours = [c.backend == backend.name, c.at >= start, c.at < start + HOUR_S]
    asked = [*ours, c.kind != IDLE, c.outcome != "failed"]
    if (
        price.billing == "spot"
        and not connection.execute(select(func.count()).select_from(entries).where(*asked)).scalar()
    ):
        return None
    assert price.machine_hour_usd is not None
    missing = usd_to_pico(price.machine_hour_usd) - spent(connection, *ours)
    if not missing:
        return None
    name = f"idle-{hashlib.sha256(backend.name.encode()).hexdigest()[:12]}-{hour}"
    before = connection.execute(select(func.count()).where(ledger.c.request_id == name)).scalar()
    return Row(
        id=f"{name}-{before}",
        request_id=name,
        attempt=0,
        at=start,
        organisation="",
        team=TEAM,
        key_id="",
        backend=backend.name,
        model=backend.model,
        tier=backend.tier,
        region=backend.region,
        outcome="ok",
        cost_pico=missing,
        price_source=f"gateway.yaml, {price.machine_hour_usd} USD per machine hour, {price.billing}",
        kind=IDLE,
    )
