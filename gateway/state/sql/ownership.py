"""Visibility of stored rows: of a key's lineage, of its team, or of a whole team to admins."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table, and_

from gateway.domain.tenant import Viewer

TEAMS = ""
"""Owner of rows that belong to a whole team: those that were made before rows had owners."""


def seen_by(table: Table, viewer: Viewer) -> ColumnElement[bool]:
    """Condition for rows of `table`, which has the columns `team` and `owner`."""
    of_team = table.c.team == viewer.team
    return and_(of_team, table.c.owner.in_((viewer.key, TEAMS))) if viewer.key else of_team
