"""Adds columns to the ledger, hash chains, roll-ups of old rows, and pseudonyms of end users."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NUMBER, COUNT, HASH = sa.Integer(), sa.BigInteger(), sa.LargeBinary(32)


def upgrade() -> None:
    _grow_ledger()
    _chains()
    _sums()
    op.create_table(
        "end_users",
        sa.Column("pseudonym", sa.String(32), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("name", sa.String(512)),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pseudonym", "team", name=op.f("pk_end_users")),
    )


def _grow_ledger() -> None:
    for name, kind, default in (
        ("prices", sa.Text(), ""),
        ("received_bytes", COUNT, "0"),
        ("sent_bytes", COUNT, "0"),
        ("end_user", sa.String(32), ""),
        ("cost_centre", sa.String(64), ""),
        ("kind", sa.String(16), ""),
        ("audio_input_tokens", NUMBER, "0"),
        ("image_input_tokens", NUMBER, "0"),
        ("image_tokens", NUMBER, "0"),
        ("supersedes", sa.String(80), ""),
        ("chain", sa.String(16), ""),
    ):
        op.add_column("ledger", sa.Column(name, kind, nullable=False, server_default=default))
    op.add_column("ledger", sa.Column("chain_seq", COUNT))
    op.add_column("ledger", sa.Column("chain_hash", HASH))
    op.create_index("ix_ledger_chain_chain_seq", "ledger", ["chain", "chain_seq"], unique=True)
    few = sa.text("supersedes <> ''")
    op.create_index("ix_ledger_supersedes", "ledger", ["supersedes"], sqlite_where=few, postgresql_where=few)


def _chains() -> None:
    op.create_table(
        "ledger_chains",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("begun_at", sa.Float(), nullable=False),
        sa.Column("outside", COUNT, nullable=False),
        sa.Column("seq", COUNT, nullable=False),
        sa.Column("hash", HASH, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_chains")),
    )
    op.create_table(
        "ledger_rollups",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("of_chain", sa.String(16), nullable=False),
        sa.Column("first_seq", COUNT),
        sa.Column("last_seq", COUNT),
        sa.Column("before_hash", HASH),
        sa.Column("after_hash", HASH),
        sa.Column("rows", COUNT, nullable=False),
        sa.Column("sums", NUMBER, nullable=False),
        sa.Column("sums_hash", HASH, nullable=False),
        sa.Column("chain", sa.String(16), nullable=False),
        sa.Column("chain_seq", COUNT, nullable=False),
        sa.Column("chain_hash", HASH, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_rollups")),
    )
    op.create_index("ix_ledger_rollups_chain_chain_seq", "ledger_rollups", ["chain", "chain_seq"], unique=True)
    op.create_index("ix_ledger_rollups_of_chain_first_seq", "ledger_rollups", ["of_chain", "first_seq"])


def _sums() -> None:
    texts = {"organisation": 64, "team": 64, "key_id": 32, "end_user": 32, "cost_centre": 64}
    places = {"dialect": 32, "model_asked": 200, "backend": 200, "model": 200, "tier": 16, "region": 64, "kind": 16}
    tokens = ("input", "cached", "cache_write_5m", "cache_write_1h", "output", "reasoning", "audio", "audio_input",
              "image_input", "image", "trimmed")  # fmt: skip
    op.create_table(
        "ledger_sums",
        sa.Column("rollup", sa.String(40), nullable=False),
        sa.Column("number", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("request_id", sa.String(48), nullable=False),
        *(sa.Column(name, NUMBER, nullable=False) for name in ("requests", "attempts", "attempt")),
        *(sa.Column(name, sa.String(length), nullable=False) for name, length in texts.items()),
        sa.Column("tags", sa.Text(), nullable=False),
        *(sa.Column(name, sa.String(length), nullable=False) for name, length in places.items()),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("stream", sa.Boolean(), nullable=False),
        sa.Column("cache", sa.String(16), nullable=False),
        sa.Column("difficulty", sa.Float()),
        sa.Column("escalated", sa.Boolean(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("price_source", sa.String(200), nullable=False),
        *(sa.Column(f"{name}_tokens", COUNT, nullable=False) for name in tokens),
        sa.Column("received_bytes", COUNT, nullable=False),
        sa.Column("sent_bytes", COUNT, nullable=False),
        sa.Column("cost_pico", COUNT),
        sa.Column("saved_pico", COUNT),
        sa.PrimaryKeyConstraint("rollup", "number", name=op.f("pk_ledger_sums")),
    )
    op.create_index(op.f("ix_ledger_sums_at"), "ledger_sums", ["at"])
    op.create_index(op.f("ix_ledger_sums_request_id"), "ledger_sums", ["request_id"])
    op.create_index("ix_ledger_sums_team_at", "ledger_sums", ["team", "at"])
