"""Adds an owner (the lineage of a key) to files, batches and responses. Existing rows belong to the whole team.

Two keys of a team may get the same cached answer, whose items have the same ids. Therefore the primary key of items now
includes the response.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("files", "batches", "responses"):
        op.add_column(table, sa.Column("owner", sa.String(32), nullable=False, server_default=""))
    # SQLite cannot change a primary key. PostgreSQL cannot use the old constraint's name again before it is dropped.
    op.execute(sa.text("CREATE TABLE response_items_before AS SELECT team, id, response_id FROM response_items"))
    op.drop_table("response_items")
    op.create_table(
        "response_items",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("response_id", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("team", "id", "response_id", name=op.f("pk_response_items")),
    )
    op.create_index("ix_response_items_team_response_id", "response_items", ["team", "response_id"])
    copied = (
        "INSERT INTO response_items (team, id, response_id) SELECT team, id, response_id FROM response_items_before"
    )
    op.execute(sa.text(copied))
    op.drop_table("response_items_before")
