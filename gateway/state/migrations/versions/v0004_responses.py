"""Adds tables of stored Responses and of their items. Later requests may refer to both."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "responses",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("session", sa.String(128), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("input", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("team", "id", name=op.f("pk_responses")),
    )
    op.create_table(
        "response_items",
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("response_id", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("team", "id", name=op.f("pk_response_items")),
    )
    op.create_index("ix_response_items_team_response_id", "response_items", ["team", "response_id"])
