"""Keys know their lineage, the id of the first key of a chain of rotations; rows tell how long a call was waited for.

Keys of before are their own: what was spent under each of them is on the ledger under its own id. Rows of before say
when their call began, so nothing was waited for since then.
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
