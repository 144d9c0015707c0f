"""Decides which stored rows a key may see: those of its lineage and of the whole team; an admin sees all of a team."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table, and_

from gateway.domain.tenant import Viewer

TEAMS = ""
"""Owner of rows that belong to a whole team, because they are older than owners."""


def seen_by(table: Table, viewer: Viewer) -> ColumnElement[bool]:
    """Condition for rows of `table`, which has the columns `team` and `owner`."""
    of_team = table.c.team == viewer.team
    return and_(of_team, table.c.owner.in_((viewer.key, TEAMS))) if viewer.key else of_team
