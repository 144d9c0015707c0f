"""Reads spend from the ledger and from journals that are not in the ledger yet, to restore budget counters."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, and_, case, func, literal, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.protocols import BudgetChecker, SpentReader, Subject
from gateway.errors import LedgerUnavailable
from gateway.ledger.journal import segments, slots
from gateway.ledger.journal.reader import JournalReader
from gateway.ledger.rows import TOKENS, Row
from gateway.ledger.store.entries import only
from gateway.ledger.store.insert_ignore import known
from gateway.ledger.store.sums import pico_sum, snapshot, whole
from gateway.state.sql.database import Database
from gateway.state.sql.tables import journal_offsets, ledger

_TRIES = 5
_MANY = 500
"""Maximum number of end users or sessions that a query names. For a larger number, the query reads all of the team."""

_entries = only("at", "team", "organisation", "key_id", "end_user", "session", "simulated", "cost_pico", *TOKENS).c
"""The columns that the queries below name. They are few, because the first request of a team waits for such a query."""


class Spending:
    """Reads spend from the ledger and this host's journals; never writes. Spend in the journals of other hosts is
    included as soon as it is in the ledger."""

    def __init__(self, directory: Path, database: Database) -> None:
        self._directory, self._database = directory, database

    async def spent(self, payer: BudgetChecker, since: float, until: float = math.inf) -> SpentReader:
        """The spend of `payer` for requests that began in `[since, until)` (Unix seconds). An attempt in progress is
        counted only if its worker is dead. Raises LedgerUnavailable."""
        named = {"organisation": payer.organisation, "team": payer.team, "key_id": payer.key_id}
        asked = {name: value for name, value in named.items() if value}
        which = and_(*_within(since, until), *(_entries[name] == value for name, value in asked.items()))

        def counts(row: Row) -> bool:
            return since <= row.at < until and all(getattr(row, name) == value for name, value in asked.items())

        return (await self._ask(which, counts, None)).get("", SpentReader())

    async def spent_by_each(
        self, by: Subject, team: str, since: float, until: float, names: Collection[str]
    ) -> Mapping[str, SpentReader]:
        """The spend of several payers in one team for requests that began in `[since, until)` (Unix seconds): name →
        spend.

        `by`: whether `names` are pseudonyms of end users or session ids. Names without spend are omitted. Spend by
        session lacks rows that were rolled up. Raises LedgerUnavailable.
        """
        c, wanted = _entries, frozenset(names)
        which = and_(
            *_within(since, until), c.team == team, c[by] != ""
        )  # this condition lets the query use the index on named sessions
        if len(wanted) <= _MANY:
            which = and_(which, c[by].in_(wanted))

        def counts(row: Row) -> bool:
            return since <= row.at < until and row.team == team and getattr(row, by) in wanted

        found = await self._ask(which, counts, by)
        return {name: spent for name, spent in found.items() if name in wanted}

    async def _ask(
        self, which: ColumnElement[bool], counts: Callable[[Row], bool], by: str | None
    ) -> dict[str, SpentReader]:
        try:
            return await asyncio.to_thread(self._spent, which, counts, by)
        except (SQLAlchemyError, OSError) as error:
            raise LedgerUnavailable(
                "Past spend cannot be read from the ledger; check that its database is up.",
                retry_after_s=5.0,
            ) from error

    def _spent(
        self, which: ColumnElement[bool], counts: Callable[[Row], bool], by: str | None
    ) -> dict[str, SpentReader]:
        # The journal is read first. A row that is drained between the reads is then in both, and counts once by its id.
        waiting = {row.id: row for row in self._undrained() if counts(row) and not row.simulated}
        with snapshot(self._database) as connection:
            found = _drained(connection, which, by)
            there = known(connection, ledger, waiting)
        for id, row in waiting.items():
            if id not in there:
                name = getattr(row, by) if by else ""
                before, cost = found.get(name, SpentReader()), row.cost_pico
                tokens = 0 if cost == 0 else sum(getattr(row, one) for one in TOKENS)
                found[name] = SpentReader(before.pico + (cost or 0), before.tokens + tokens)
        return found

    def _undrained(self) -> list[Row]:
        for attempt in range(_TRIES):
            try:
                return self._read()
            except FileNotFoundError:  # the file was drained and deleted in the meantime: read again
                if attempt == _TRIES - 1:
                    raise
        return []

    def _read(self) -> list[Row]:
        # Read offsets before files: otherwise an offset could belong to a newer file than those listed.
        table = journal_offsets.c
        with self._database.read() as connection:
            saved = connection.execute(select(table.lane, table.segment, table.position)).all()
        places = {lane: (segment, position) for lane, segment, position in saved}
        rows: list[Row] = []
        for name, files in segments.lanes(self._directory).items():
            lane = JournalReader(name, places.get(name, (0, 0)))
            with segments.ended(self._directory, files[-1]) as dead:
                for segment in files:
                    before = None
                    while lane.place != before:
                        before = lane.place
                        rows += map(Row.of, lane.read([segment]))
                if dead:  # the dead worker's open attempts cost money too, and the writer may not have closed them yet
                    rows += lane.orphans(slots.read(slots.path_of(self._directory, name)))
        return rows


def _within(since: float, until: float) -> list[ColumnElement[bool]]:
    c = _entries
    return [c.at >= since, *([] if math.isinf(until) else [c.at < until])]


def _drained(connection: Connection, which: ColumnElement[bool], by: str | None) -> dict[str, SpentReader]:
    """The spend in the database, for the rows that fulfil `which`: value of the column `by` → pico-dollars. If `by` is
    None, the whole spend has an empty name."""
    c = _entries
    tokens = case((c.cost_pico == 0, 0), else_=sum((c[name] for name in TOKENS), start=literal(0)))
    group = [c[by]] if by else []
    found = connection.execute(
        select(*group, *pico_sum(c.cost_pico), func.sum(tokens)).where(which, c.simulated.is_(False)).group_by(*group)
    )
    return {row[0] if by else "": SpentReader(whole(row[-3], row[-2]), int(row[-1] or 0)) for row in found}
