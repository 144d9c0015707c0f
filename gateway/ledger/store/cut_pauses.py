"""The teams for which leaving out old outputs is switched off. The alert about a team is stored in table `alerts`, and
this row is also the switch, so that the switch and the alert cannot differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson
from sqlalchemy import Connection, select

from gateway.state.sql.tables import alerts

KIND: Final = "context"
"""Kind of the alerts that switch cuts off."""
OFF_S = 14 * 86400.0
"""Seconds for which cuts stay switched off."""


@dataclass(frozen=True, slots=True)
class CutPause:
    """The latest time span in which cuts were switched off for a team, in Unix seconds."""

    begin: float
    end: float
    why: str


def read(connection: Connection, since: float) -> dict[str, CutPause]:
    """Team → the latest pause of the team that began at `since` (Unix seconds) or later."""
    c = alerts.c
    which = c.kind == KIND, c.target == "", c.created_at >= since
    rows = connection.execute(select(c.team, c.created_at, c.payload).where(*which).order_by(c.created_at))
    return {team: CutPause(at, at + OFF_S, _why(payload)) for team, at, payload in rows}


def _why(payload: str) -> str:
    found: Any = orjson.loads(payload)
    return str(found.get("text", ""))
