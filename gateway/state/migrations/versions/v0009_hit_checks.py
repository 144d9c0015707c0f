"""Adds a table of checks of semantic hits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    counts = ("lookups", "hits", "checked", "wrong", "undecided", "called_wrong")
    op.create_table(
        "hit_checks",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in counts),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("weight", "weight_squared", "weight_wrong")),
        sa.PrimaryKeyConstraint("team", "at", name=op.f("pk_hit_checks")),
    )
