"""Adds the service tier, units without a price, and contradictions in reported numbers to ledger rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("ledger", "ledger_sums"):
        op.add_column(table, sa.Column("service_tier", sa.String(128), nullable=False, server_default=""))
        op.add_column(table, sa.Column("unpriced", sa.Text(), nullable=False, server_default=""))
    op.add_column("ledger", sa.Column("doubt", sa.String(200), nullable=False, server_default=""))
