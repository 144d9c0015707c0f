"""Adds the coding agent and the traffic class of the request to ledger rows, and an index by which sessions are
found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("ledger", "ledger_sums"):
        op.add_column(table, sa.Column("agent", sa.String(16), nullable=False, server_default=""))
        op.add_column(table, sa.Column("traffic_class", sa.String(32), nullable=False, server_default=""))
    named = sa.text("session <> ''")
    op.create_index("ix_ledger_session", "ledger", ["session"], sqlite_where=named, postgresql_where=named)
