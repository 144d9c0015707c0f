"""Adds routing's decision in observe mode to ledger rows, and tables of comparisons, their cost, and plans."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table, millionths in (("ledger", sa.Integer()), ("ledger_sums", sa.BigInteger())):
        op.add_column(table, sa.Column("decided", sa.String(200), nullable=False, server_default=""))
        op.add_column(table, sa.Column("decided_pico", sa.BigInteger()))
        op.add_column(table, sa.Column("decided_ppm", millionths, nullable=False, server_default="0"))
    for name in ("predicted", "target"):
        op.add_column("feedback", sa.Column(name, sa.Float()))
    op.create_index("ix_feedback_key_id_at", "feedback", ["key_id", "at"])
    op.create_index("ix_feedback_team_backend_id", "feedback", ["team", "backend", "id"])
    _evidence()
    op.create_table(
        "shadow_spend",
        sa.Column("period", sa.String(40), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("held_pico", sa.BigInteger(), nullable=False),
        sa.Column("spent_pico", sa.BigInteger(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("period", "team", name=op.f("pk_shadow_spend")),
    )
    op.create_table(
        "artefacts",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("why", sa.String(300), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artefacts")),
    )


def _evidence() -> None:
    texts = {"team": 64, "backend": 200, "reference": 200, "source": 16, "judge": 200}
    op.create_table(
        "evidence",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("request_id", sa.String(48), nullable=False),
        *(sa.Column(name, sa.String(length), nullable=False) for name, length in texts.items()),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("predicted", "target", "score", "weight")),
        sa.Column("plans", sa.Text(), nullable=False, server_default="{}"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evidence")),
    )
    op.create_index(op.f("ix_evidence_request_id"), "evidence", ["request_id"])
    op.create_index("ix_evidence_team_backend_id", "evidence", ["team", "backend", "id"])
    op.create_index("ix_evidence_at", "evidence", ["at"])
