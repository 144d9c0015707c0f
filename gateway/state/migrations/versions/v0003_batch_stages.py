"""Adds columns: the times of a batch's stages, the headers and the usage of a batch's lines, and the expiry of
files.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("files", sa.Column("expires_at", sa.Float(), nullable=True))
    for name, kind in (
        ("headers", sa.Text()),
        ("model", sa.String(200)),
        ("usage", sa.Text()),
        ("unsent", sa.Integer()),
        ("output_expires_s", sa.Float()),
        ("cancelling_at", sa.Float()),
        ("finalizing_at", sa.Float()),
        ("idempotency", sa.String(64)),
        ("fingerprint", sa.String(64)),
    ):
        op.add_column("batches", sa.Column(name, kind, nullable=True))
    op.create_index(op.f("ix_batches_idempotency"), "batches", ["idempotency"], unique=True)
