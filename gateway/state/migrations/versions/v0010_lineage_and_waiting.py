"""Adds two columns. Keys get their lineage: the id of the first key in a chain of rotations. Ledger rows get the time
from the start of the request to the call.

The lineage of an existing key is its own id, because the ledger has its spend under this id. In existing rows, the time
from the start of the request to the call is 0, because only the start of the call is known.
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
