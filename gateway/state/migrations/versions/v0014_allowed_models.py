"""Keys can be limited to some models; existing keys may use all that their policy allows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("keys", sa.Column("allowed_models", sa.Text()))
