"""Adds the lineage to keys (the id of the first key of a chain of rotations), and the time until the call to ledger
rows.

The lineage of existing keys is their own id, under which the ledger has their spend. Existing rows have the call's
start as their time, so their time until the call is 0.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("keys", sa.Column("lineage", sa.String(32), nullable=False, server_default=""))
    keys = sa.table("keys", sa.column("id", sa.String), sa.column("lineage", sa.String))
    op.execute(keys.update().values(lineage=keys.c.id))
    op.add_column("ledger", sa.Column("waited_ms", sa.Integer(), nullable=False, server_default="0"))
