"""The alert that an agent repeats a failing tool call with the same arguments."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.admission.tool_loops import LoopReport
from gateway.alerts.alert import Alert, alert, digest
from gateway.alerts.delivery import deliveries
from gateway.domain.money.windows import iso
from gateway.domain.policy import Policy
from gateway.domain.protocols import Clock
from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

_MOST_KNOWN = 10_000
_DAY_S = 86_400


def tool_loop_alert(loop: LoopReport, now: float) -> Alert:
    """Make the alert about a tool loop. The alert's id is the same for loops with the same session, tool and day."""
    who = f"{loop.agent or 'A client'} of team {loop.team}" + (f", session {loop.session}," if loop.session else "")
    then = f"; from {loop.stops_at} times on it is refused" if loop.stops_at else ""
    text = (
        f"{who} has called the tool {loop.tool!r} {loop.rounds} times in a row with the same arguments and the same "
        f"error{then}."
    )
    facts = {
        "session": loop.session,
        "agent": loop.agent,
        "tool": loop.tool,
        "rounds": loop.rounds,
        "threshold": "tool_loop",
        "at": iso(now),
        "text": text,
    }
    what = digest(f"{loop.session}\0{loop.tool}", 16)
    return alert(f"{loop.team}/tool_loop/{int(now // _DAY_S)}/{what}", "tool_loop", "warning", loop.team, facts)


class ToolLoopAlerts:
    """Stores the alerts about tool loops that one worker has found. The process of the supervisor delivers them."""

    def __init__(self, database: Database, policy_of: Callable[[str], Policy], tasks: Tasks, clock: Clock) -> None:
        self._database, self._policy_of, self._tasks, self._clock = database, policy_of, tasks, clock
        self._known: set[str] = set()

    def report(self, loop: LoopReport) -> None:
        now = self._clock.time()
        found = tool_loop_alert(loop, now)
        if found.id in self._known:
            return
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(found.id)
        self._tasks.spawn(self._store(found, loop.team, now), "alert about a tool loop")

    async def _store(self, found: Alert, team: str, now: float) -> None:
        rules = self._policy_of(team).alerts

        def write(connection: Connection) -> bool:
            return deliveries.write(connection, found, team, rules.notify, rules, now)

        try:
            if await self._database.run(write):
                log.warning("%s", found.payload["text"])
        except SQLAlchemyError as error:
            self._known.discard(found.id)
            log.warning("an alert about a tool loop cannot be stored: %s", error)
