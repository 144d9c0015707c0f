"""Adds a table of the samples (compared requests and answers) that teams keep for learning."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "samples",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(48), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("traffic_class", sa.String(32), nullable=False),
        sa.Column("bytes", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("team", "request_id", name=op.f("pk_samples")),
    )
    op.create_index("ix_samples_expires_at", "samples", ["expires_at"])
