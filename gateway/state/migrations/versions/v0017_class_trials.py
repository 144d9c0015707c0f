"""Adds the trials of traffic classes, and the traffic class of compared answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("evidence", sa.Column("traffic_class", sa.String(32), nullable=False, server_default=""))
    op.create_table(
        "class_trials",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("traffic_class", sa.String(32), nullable=False),
        sa.Column("backend", sa.String(200), nullable=False),
        sa.Column("reference", sa.String(200), nullable=False),
        sa.Column("target", sa.Float, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("stage", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint(
            "team", "traffic_class", "backend", "reference", "target", name=op.f("pk_class_trials")
        ),
    )
    op.create_index("ix_class_trials_at", "class_trials", ["at"])
