"""Keeps in each worker a list of the teams for which context changes (such as leaving out old tool outputs) are
switched off. The worker reads the list from SQL at intervals, so that all workers apply a change at about the same
time."""

from __future__ import annotations

import logging
import time

from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.protocols import Clock
from gateway.ledger.store import cut_pauses
from gateway.runtime.tasks import Tasks, repeat
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

INTERVAL_S = 30.0


class CutSwitch:
    """Knows for which teams context changes (such as leaving out old tool outputs) are switched off. The database is
    read only after the first look-up of a team."""

    def __init__(self, database: Database, *, interval_s: float = INTERVAL_S, clock: Clock = time) -> None:
        self._database, self._interval_s, self._clock = database, interval_s, clock
        self._until: dict[str, float] = {}
        """Team → Unix time until which context changes are switched off for the team."""
        self._used = False
        self._tasks = Tasks()

    async def open(self) -> None:
        """Start to read the list of teams in the background. Never raises."""
        self._tasks.spawn(repeat(self.refresh, self._interval_s, _troubled, SQLAlchemyError), "pauses of cuts")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def is_off(self, team: str) -> bool:
        """Return whether context changes (such as leaving out old tool outputs) are switched off for `team` now."""
        self._used = True
        return bool(self._until) and self._clock.time() < self._until.get(team, 0.0)

    async def refresh(self) -> None:
        """Read the teams for which context changes (such as leaving out old tool outputs) are switched off now. Raises
        SQLAlchemyError."""
        if not self._used:
            return
        since = self._clock.time() - cut_pauses.OFF_S
        found = await self._database.run(lambda connection: cut_pauses.read(connection, since), writes=False)
        self._until = {team: pause.end for team, pause in found.items()}

    def stats(self) -> dict[str, int | float | str]:
        now = self._clock.time()
        return {"cuts_off": sum(now < until for until in self._until.values())}


def _troubled(error: Exception) -> None:
    log.warning("the teams whose old outputs must stay cannot be read; the last known ones are used: %s", error)
