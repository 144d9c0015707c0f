"""Decides which stored rows a key may see: rows of its lineage, and rows of the whole team. An admin sees all rows
of a team.

The lineage is the key and all keys that it has replaced by rotation.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table, and_

from gateway.domain.tenant import Viewer

TEAMS = ""
"""Owner of rows that belong to a whole team, because they were written before rows had owners."""


def seen_by(table: Table, viewer: Viewer) -> ColumnElement[bool]:
    """The condition for the rows of `table` that `viewer` (a key or a team) may see. `table` must have the columns
    `team` and `owner`."""
    of_team = table.c.team == viewer.team
    return and_(of_team, table.c.owner.in_((viewer.key, TEAMS))) if viewer.key else of_team
