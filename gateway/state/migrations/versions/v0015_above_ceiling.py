"""Adds a column to ledger rows: whether the call was expected to cost more than the model that the client named."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ledger", sa.Column("above_ceiling", sa.Boolean(), nullable=False, server_default=sa.text("false")))
