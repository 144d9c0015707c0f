"""Adds tables of drained workers, and of the holds for dead workers that are not drained."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drained_workers",
        sa.Column("worker", sa.String(128), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(64), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("worker", name=op.f("pk_drained_workers")),
    )
    op.create_table(
        "orphaned_holds",
        sa.Column("worker", sa.String(128), nullable=False),
        sa.Column("counter", sa.String(400), nullable=False),
        sa.Column("tag", sa.String(160), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("limit_units", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("worker", "counter", name=op.f("pk_orphaned_holds")),
    )
