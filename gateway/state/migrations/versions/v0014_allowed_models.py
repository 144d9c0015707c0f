"""Adds a list of allowed models to keys. Existing keys may use all models that their policy allows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("keys", sa.Column("allowed_models", sa.Text()))
