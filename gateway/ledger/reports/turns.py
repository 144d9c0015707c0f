"""Limits the number of ledger queries that run at the same time. So no team delays other teams, or the worker's other
work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway.errors import Overloaded

MOST_WAITING = 32
"""Maximum number of queries of one team that run or wait."""


@dataclass(slots=True)
class _Queue:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    queries: int = 0


class Turns:
    """Lets one query of each team run at a time, and at most `at_once` queries of all teams together."""

    def __init__(self, at_once: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._teams: dict[str, _Queue] = {}

    @asynccontextmanager
    async def of(self, team: str) -> AsyncIterator[None]:
        """Wait until a query of `team` may run; the query runs inside the context. Raises Overloaded if too many
        queries of the team wait."""
        queue = self._teams.setdefault(team, _Queue())
        if queue.queries >= MOST_WAITING:
            raise Overloaded(f"{MOST_WAITING} queries of team {team} are waiting; try again.", retry_after_s=1.0)
        queue.queries += 1
        try:
            async with queue.turn, self._all:
                yield
        finally:
            queue.queries -= 1
            if not queue.queries:
                del self._teams[team]
