"""Adds the start time of batches, and the errors of their lines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batches", sa.Column("started_at", sa.Float(), nullable=True))
    op.add_column("batches", sa.Column("errors", sa.Text(), nullable=True))
