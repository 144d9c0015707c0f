"""Keeps the trials of traffic classes in the memory of one worker. They are read from SQL at intervals, so that all
workers open and close a class at about the same time."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.protocols import Clock
from gateway.domain.routing.class_trial import Change, ClassTrial, Comparison, TrialKey
from gateway.ledger.store import class_trials
from gateway.runtime.tasks import Tasks, repeat
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
STALE_S = 30.0
"""Age, in seconds, of the latest successful read from which the trials are not used. Then references answer."""
_OVERLAP_S = 30.0
"""Rows changed in the seconds before the latest read are read again, because clocks of hosts differ."""


class StoredTrials:
    """Implements `ClassTrials` with trials that were read from SQL once."""

    def __init__(self, trials: Mapping[TrialKey, ClassTrial]) -> None:
        self._trials = trials

    def find(self, key: TrialKey) -> ClassTrial | None:
        return self._trials.get(key)


class LiveTrials:
    """Implements `ClassTrials` of domain/protocols.py. The database is read only after the first look-up of a trial."""

    def __init__(self, database: Database, *, interval_s: float = INTERVAL_S, clock: Clock = time) -> None:
        self._database, self._interval_s, self._clock = database, interval_s, clock
        self._trials: dict[TrialKey, ClassTrial] = {}
        self._sound: defaultdict[TrialKey, int] = defaultdict(int)
        """Trial → number of served answers that did not look weak, since its latest stored comparison."""
        self._used = False
        self._read_at = 0.0
        self._counts = dict.fromkeys(("opened", "closed", "refused"), 0)
        self._tasks = Tasks()

    async def open(self) -> None:
        """Start to read trials in the background. Never raises."""
        self._tasks.spawn(self._follow(), "trials of classes")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def find(self, key: TrialKey) -> ClassTrial | None:
        self._used = True
        return self._trials.get(key) if self._clock.time() - self._read_at < STALE_S else None

    def count_sound(self, key: TrialKey) -> None:
        """Count an answer to a client that did not look weak. The count is stored with the next comparison."""
        self._sound[key] += 1

    async def see(self, key: TrialKey, seen: Comparison) -> Change:
        """Store a comparison. This worker applies the new state at once, and other workers at their next read. Raises
        SQLAlchemyError."""
        sound, now = self._sound.pop(key, 0), self._clock.time()
        whole = seen._replace(sound=sound)
        trial, change = await self._database.run(lambda connection: class_trials.see(connection, key, whole, now))
        known = self._trials.get(key)
        if known is None or known.version < trial.version:
            self._trials[key] = trial
        if change:
            self._counts[change] += 1
            log.info(
                "class %s of team %s, backend %s: %s (%s)", key.traffic_class, key.team, key.backend, change, trial.why
            )
        return change

    async def refresh(self) -> None:
        """Read the trials that changed since the previous call. Raises SQLAlchemyError."""
        if not self._used:
            return
        now = self._clock.time()
        since = self._read_at - _OVERLAP_S if self._read_at else 0.0
        found = await self._database.run(lambda connection: class_trials.read(connection, since), writes=False)
        for key, trial in found.items():
            known = self._trials.get(key)
            if known is None or known.version < trial.version:  # a comparison of this worker may be newer
                self._trials[key] = trial
        self._read_at = now

    def stats(self) -> dict[str, int | float | str]:
        known = list(self._trials.values())
        return {"classes": len(known), "classes_open": sum(trial.stage > 0 for trial in known), **self._counts}

    async def _follow(self) -> None:
        await repeat(self.refresh, self._interval_s, _troubled, SQLAlchemyError)


def _troubled(error: Exception) -> None:
    log.warning("trials of traffic classes cannot be read, so references answer instead of cheaper backends: %s", error)
