"""What a team has spent, the journal's undrained tail included: the truth that budget counters are rebuilt from."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, and_, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.errors import LedgerUnavailable
from gateway.ledger import segments
from gateway.ledger.lane import Lane
from gateway.ledger.once import known
from gateway.ledger.rows import Row
from gateway.ledger.sums import pico_sum, snapshot, whole
from gateway.state.sql import Database
from gateway.state.tables import journal_offsets, ledger

_TRIES = 5


class Spending:
    """Reads only; any process may. Journals of other hosts are seen once their own writer has drained them."""

    def __init__(self, directory: Path, database: Database) -> None:
        self._directory, self._database = directory, database

    async def spent_pico(self, team: str, since: float) -> int:
        """Pico-dollars of attempts that `team` began at `since` (Unix seconds) or later and that have ended.

        Simulated and unpriced attempts count nothing. Raises LedgerUnavailable.
        """
        try:
            return await asyncio.to_thread(self._spent, team, since)
        except (SQLAlchemyError, OSError) as error:
            raise LedgerUnavailable(
                "What was spent so far cannot be read from the ledger; check that its database is up.",
                retry_after_s=5.0,
            ) from error

    def _spent(self, team: str, since: float) -> int:
        # The journal first: what is drained in between is then found in both, and counted once by its id.
        waiting = {
            row.id: row.cost_pico
            for row in self._undrained()
            if row.team == team and row.at >= since and row.cost_pico is not None and not row.simulated
        }
        with snapshot(self._database) as connection:
            drained = spent_in_ledger(connection, and_(ledger.c.team == team, ledger.c.at >= since))
            there = known(connection, ledger, waiting)
        return drained + sum(cost for id, cost in waiting.items() if id not in there)

    def _undrained(self) -> list[Row]:
        for attempt in range(_TRIES):
            try:
                return self._read()
            except FileNotFoundError:  # drained and deleted just now: look again
                if attempt == _TRIES - 1:
                    raise
        return []

    def _read(self) -> list[Row]:
        # Places first, then files: the other way round a place might lie beyond the files that were listed.
        table = journal_offsets.c
        with self._database.read() as connection:
            saved = connection.execute(select(table.lane, table.segment, table.position)).all()
        places = {lane: (segment, position) for lane, segment, position in saved}
        rows: list[Row] = []
        for name, files in segments.lanes(self._directory).items():
            lane = Lane(name, places.get(name, (0, 0)))
            for segment in files:
                before = None
                while lane.place != before:
                    before = lane.place
                    rows += map(Row.of, lane.read([segment]))
        return rows


def spent_in_ledger(connection: Connection, which: ColumnElement[bool]) -> int:
    """Pico-dollars of the drained rows that `which` holds for, simulated ones left out."""
    high, low = connection.execute(
        select(*pico_sum(ledger.c.cost_pico)).where(which, ledger.c.simulated.is_(False))
    ).one()
    return whole(high, low)
