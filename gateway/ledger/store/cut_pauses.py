"""Reads for which teams the shortening of old tool outputs is switched off. An alert switches it off. The switch is
not stored separately: it follows from the alert's row in the table `alerts`. So alert and switch always agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson
from sqlalchemy import Connection, select

from gateway.state.sql.tables import alerts

KIND: Final = "context"
"""Kind of the alerts that switch off leaving out old outputs."""
OFF_S = 14 * 86400.0
"""Seconds for which leaving out old outputs stays switched off."""


@dataclass(frozen=True, slots=True)
class CutPause:
    """The latest span of time, in Unix seconds, in which shortening was switched off for a team."""

    begin: float
    end: float
    why: str


def read(connection: Connection, since: float) -> dict[str, CutPause]:
    """The latest pause of each team, as team → pause. Only pauses count that began at `since` (Unix seconds) or
    later."""
    c = alerts.c
    which = c.kind == KIND, c.target == "", c.created_at >= since
    rows = connection.execute(select(c.team, c.created_at, c.payload).where(*which).order_by(c.created_at))
    return {team: CutPause(at, at + OFF_S, _why(payload)) for team, at, payload in rows}


def _why(payload: str) -> str:
    found: Any = orjson.loads(payload)
    return str(found.get("text", ""))
