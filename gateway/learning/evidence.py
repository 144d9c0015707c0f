"""Keeps the evidence about each team's backends in memory. It is read from SQL at intervals, so that all workers have
the same evidence."""

from __future__ import annotations

import logging
import time

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.protocols import Clock
from gateway.domain.routing.learned import NOTHING, Learned
from gateway.domain.routing.standing import Standing, standing
from gateway.ledger.store import evidence
from gateway.runtime.tasks import Tasks, repeat
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
AGAIN_S = 3600.0
"""Seconds between two reads of all rows. A read of all rows drops rows that have become too old to count."""
_OVERLAP = 20
"""Number of ids below the newest seen id that are read again. The database assigns ids before transactions commit, so a
row with a lower id may appear later."""

Pair = tuple[str, str]
"""(team, backend)."""


class Learning:
    """Implements `Evidence` of domain/protocols.py: the evidence about backends from judged answers. The figures of a
    team never include answers of another team."""

    def __init__(self, database: Database, *, interval_s: float = INTERVAL_S, clock: Clock = time) -> None:
        self._database, self._interval_s, self._clock = database, interval_s, clock
        self._standings: dict[Pair, Standing] = {}
        self._seen = (0, 0)
        self._all_at = 0.0
        self._tasks = Tasks()

    async def open(self) -> None:
        """Start to read the evidence in the background. Never raises. While the database is unavailable, there is no
        evidence, and reading is tried again."""
        self._tasks.spawn(self._follow(), "evidence")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def adjust(self, team: str, backend: str) -> Learned:
        found = self._standings.get((team, backend))
        return NOTHING if found is None else found.learned

    def stats(self) -> dict[str, int | float | str]:
        known = list(self._standings.values())
        return {"known": len(known), "below_target": sum(one.below for one in known)}

    async def _follow(self) -> None:
        await repeat(self.refresh, self._interval_s, _troubled, SQLAlchemyError)

    async def refresh(self) -> None:
        """Read the answers that were judged since the last call. Raises SQLAlchemyError."""
        now = self._clock.time()
        whole = now >= self._all_at + AGAIN_S or now < self._all_at
        before = {} if whole else self._standings
        if whole:
            await self._database.run(lambda connection: evidence.prune(connection, now))
        seen, found = await self._database.run(
            lambda connection: changed(connection, (0, 0) if whole else self._seen, now), writes=False
        )
        self._standings = {**before, **found}
        self._seen = seen
        self._all_at = now if whole else self._all_at


def changed(connection: Connection, seen: tuple[int, int], now: float) -> tuple[tuple[int, int], dict[Pair, Standing]]:
    """Read what has changed since the last call. `seen`: the newest ids of judged answers at that time. Returns the
    newest ids now, and the statistics (`Standing`) of each (team, backend) that has newer judged answers.
    """
    newest = evidence.newest(connection)
    if newest == seen:
        return seen, {}
    since = now - evidence.WINDOW_S
    after = max(0, seen[0] - _OVERLAP), max(0, seen[1] - _OVERLAP)
    found: dict[Pair, Standing] = {}
    for team, backend in evidence.judged_pairs(connection, after, since):
        if rows := evidence.read(connection, team, backend, since):
            found[team, backend] = standing(rows)
    return newest, found


def _troubled(error: Exception) -> None:
    log.warning("judged answers cannot be read, so the previous figures are still used: %s", error)
