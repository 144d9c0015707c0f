"""Adds kind, severity, acknowledgement and escalation to alerts; deliveries can be given up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name, kind, default in (
        ("kind", sa.String(32), "threshold"),
        ("severity", sa.String(16), "warning"),
        ("acknowledged_by", sa.String(64), ""),
    ):
        op.add_column("alerts", sa.Column(name, kind, nullable=False, server_default=default))
    for name in ("acknowledged_at", "escalate_at", "dead_at"):
        op.add_column("alerts", sa.Column(name, sa.Float()))
