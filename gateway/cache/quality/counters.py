"""Counts of checked semantic hits in SQL, for each team and each quarter of an hour."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as DatabaseTimeout

from gateway.cache.quality.error_bound import Measured
from gateway.domain.protocols import Clock
from gateway.state.sql.database import Database
from gateway.state.sql.tables import hit_checks

log = logging.getLogger(__name__)

QUARTER_S = 900
"""Length of a counting period in seconds. A period is a quarter of an hour, because time zones differ by multiples of a
quarter of an hour."""
CLOSE_S = 2.0
"""Maximum seconds that closing waits until the last counts have been written."""
_MOST = 10_000
"""Maximum number of (team, quarter of an hour) counts that wait while the database is unavailable."""

_NAMES = [column.name for column in hit_checks.c if not column.primary_key]
_SUMS = ", ".join(f"{name} = hit_checks.{name} + excluded.{name}" for name in _NAMES)
_ADD = text(
    f"INSERT INTO hit_checks (team, at, {', '.join(_NAMES)}) VALUES (:team, :at, :{', :'.join(_NAMES)}) "  # noqa: S608 - names of columns
    f"ON CONFLICT (team, at) DO UPDATE SET {_SUMS}"
)


@dataclass(slots=True)
class CheckCounts:
    """Counts of one team in one period."""

    measured: Measured = field(default_factory=Measured)
    called_wrong: int = 0
    """Hits that clients reported as wrong. `measured` does not include them, because they are not a random sample."""

    def as_object(self) -> dict[str, Any]:
        return {**self.measured.as_object(), "called_wrong": self.called_wrong}


class HitCounters:
    """Counts hits, and writes the counts to the database in a thread. A look-up is counted for the team that made
    it.
    """

    def __init__(self, database: Database, *, clock: Clock = time) -> None:
        self._database, self._clock = database, clock
        self._waiting: dict[tuple[str, int], CheckCounts] = {}

    def looked(self, team: str, *, hit: bool) -> None:
        measured = self._now(team).measured
        measured.lookups += 1
        measured.hits += hit

    def checked(self, team: str, *, wrong: bool | None, probability: float) -> None:
        """Count the comparison of one hit with a fresh answer. `wrong`: the result; None: undecided. `probability`: the
        probability with which the hit was selected for the comparison."""
        measured = self._now(team).measured
        if wrong is None:
            measured.undecided += 1
        else:
            measured.check(wrong=wrong, share=probability)

    def called_wrong(self, team: str) -> None:
        self._now(team).called_wrong += 1

    def _now(self, team: str) -> CheckCounts:
        name = team, int(self._clock.time() // QUARTER_S) * QUARTER_S
        counts = self._waiting.get(name)
        if counts is None:
            if len(self._waiting) >= _MOST:
                del self._waiting[next(iter(self._waiting))]
            counts = self._waiting[name] = CheckCounts()
        return counts

    async def write(self) -> None:
        """Add the waiting counts to the database. If the database is unavailable, the counts continue to wait."""
        taken, self._waiting = self._waiting, {}
        if not taken:
            return
        rows = [
            {"team": team, "at": at, "called_wrong": counts.called_wrong}
            | {name: getattr(counts.measured, name) for name in Measured.__slots__}
            for (team, at), counts in sorted(taken.items())  # writers that use one order cannot block each other
        ]
        try:
            await self._database.run(lambda connection: connection.execute(_ADD, rows))
        except (
            DatabaseTimeout
        ) as error:  # the counts may have been written, and losing counts is better than counting twice
            log.warning("what checks of cached answers found is not written down: %s", error)
        except SQLAlchemyError as error:
            log.info("what checks of cached answers found waits for the database: %s", error)
            self._keep(taken)

    def _keep(self, taken: dict[tuple[str, int], CheckCounts]) -> None:
        newer, self._waiting = self._waiting, taken
        for name, counts in newer.items():
            old = self._waiting.setdefault(name, CheckCounts())
            old.measured.add(counts.measured.figures)
            old.called_wrong += counts.called_wrong
        while len(self._waiting) > _MOST:
            del self._waiting[next(iter(self._waiting))]

    async def aclose(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.write()
        except TimeoutError:
            log.warning("the last figures of checked answers were not written in time")


def read(
    connection: Connection, *, team: str | None = None, since: float | None = None, until: float | None = None
) -> dict[str, CheckCounts]:
    """Team → its counts in all quarters of an hour that overlap `[since, until)` (Unix seconds). Teams without
    semantic look-ups are left out.

    `since` and `until` may be None for no limit, and `team` may be None for all teams.
    """
    c = hit_checks.c
    conditions = [
        *([c.team == team] if team is not None else []),
        *([c.at > since - QUARTER_S] if since is not None else []),
        *([c.at < until] if until is not None else []),
    ]
    sums = [func.sum(c[name]) for name in _NAMES]
    rows = connection.execute(select(c.team, *sums).where(*conditions).group_by(c.team).order_by(c.team))
    return {row[0]: _counts_of(dict(zip(_NAMES, row[1:], strict=True))) for row in rows}


def _counts_of(sums: dict[str, Any]) -> CheckCounts:
    found: dict[str, Any] = {  # PostgreSQL returns the sum of integers as a decimal
        name: float(value) if name.startswith("weight") else int(value) for name, value in sums.items()
    }
    called_wrong = found.pop("called_wrong")
    return CheckCounts(Measured(**found), called_wrong)
