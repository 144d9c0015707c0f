"""Every SQL table, once; the migrations must lead here (a test compares them)."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, Text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False, unique=True),  # SHA-256 of a 256-bit random key
    Column("team", String(64), nullable=False),
    Column("name", String(200), nullable=False, default=""),
    Column("scopes", String(64), nullable=False),  # comma-separated
    Column("created_at", Float, nullable=False),  # Unix seconds, here and below
    Column("expires_at", Float),
    Column("revoked_at", Float),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("actor", String(64), nullable=False),
    Column("action", String(64), nullable=False),
    Column("subject", String(200), nullable=False),
    Column("detail", Text, nullable=False, default=""),
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", String(64), primary_key=True),  # the attempt's id, so that replay is idempotent
    Column("request_id", String(48), nullable=False, index=True),
    Column("attempt", Integer, nullable=False),  # 0: answered without a backend (cache)
    Column("at", Float, nullable=False, index=True),
    Column("organisation", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("key_id", String(32), nullable=False),
    Column("session", String(128), nullable=False, default=""),
    Column("tags", Text, nullable=False, default="{}"),  # JSON object
    Column("dialect", String(32), nullable=False),
    Column("model_asked", String(200), nullable=False),
    Column("backend", String(200), nullable=False),
    Column("model", String(200), nullable=False),
    Column("tier", String(16), nullable=False),
    Column("region", String(64), nullable=False, default=""),
    Column("simulated", Boolean, nullable=False, default=False),  # kept out of every total
    Column("outcome", String(16), nullable=False),  # ok | failed | interrupted | escalated
    Column("status", Integer),
    Column("error", String(200), nullable=False, default=""),
    Column("stream", Boolean, nullable=False),
    Column("cache", String(16), nullable=False),
    Column("difficulty", Float),
    Column("escalated", Boolean, nullable=False, default=False),
    Column("input_tokens", Integer, nullable=False, default=0),
    Column("cached_tokens", Integer, nullable=False, default=0),
    Column("cache_write_5m_tokens", Integer, nullable=False, default=0),
    Column("cache_write_1h_tokens", Integer, nullable=False, default=0),
    Column("output_tokens", Integer, nullable=False, default=0),
    Column("reasoning_tokens", Integer, nullable=False, default=0),
    Column("audio_tokens", Integer, nullable=False, default=0),
    Column("estimated", Boolean, nullable=False, default=False),
    Column("trimmed_tokens", Integer, nullable=False, default=0),
    Column("cost_pico", BigInteger),  # pico-dollars; NULL: unpriced, which is never 0
    Column("saved_pico", BigInteger),  # what a cache hit would have cost
    Column("price_source", String(200), nullable=False, default=""),
    Column("first_byte_ms", Float),
    Column("duration_ms", Float),
    Index("ix_ledger_team_at", "team", "at"),
)

journal_offsets = Table(
    "journal_offsets",
    metadata,
    # Where the writer resumes in a worker's journal; moved in the transaction that writes the rows.
    Column("lane", String(120), primary_key=True),  # one life of one worker
    Column("segment", Integer, nullable=False),  # number of the file
    Column("position", BigInteger, nullable=False),  # bytes
    Column("updated_at", Float, nullable=False),
)

alerts = Table(
    "alerts",
    metadata,
    Column("id", String(160), primary_key=True),  # team/budget/window start/threshold: once each
    Column("team", String(64), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("payload", Text, nullable=False),  # JSON
    Column("target", String(200), nullable=False),  # env:NAME, never the URL
    Column("delivered_at", Float),
    Column("tries", Integer, nullable=False, default=0),
    Column("next_try_at", Float, nullable=False, default=0.0),
    Column("last_error", String(300), nullable=False, default=""),
)

feedback = Table(
    "feedback",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("request_id", String(48), nullable=False, index=True),
    Column("team", String(64), nullable=False),
    Column("key_id", String(32), nullable=False),
    Column("backend", String(200), nullable=False, default=""),
    Column("difficulty", Float),
    Column("score", Float),  # 0..1: how good the answer was
    Column("cache", String(16), nullable=False, default=""),
    Column("comment", String(1000), nullable=False, default=""),
)

files = Table(
    "files",
    metadata,
    Column("id", String(48), primary_key=True),
    Column("team", String(64), nullable=False, index=True),
    Column("key_id", String(32), nullable=False),
    Column("filename", String(255), nullable=False),
    Column("purpose", String(64), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
)

batches = Table(
    "batches",
    metadata,
    Column("id", String(48), primary_key=True),
    Column("team", String(64), nullable=False, index=True),
    Column("key_id", String(32), nullable=False),
    Column("status", String(16), nullable=False, index=True),
    Column("endpoint", String(64), nullable=False),
    Column("input_file_id", String(48), nullable=False),
    Column("output_file_id", String(48)),
    Column("error_file_id", String(48)),
    Column("metadata", Text, nullable=False, default="{}"),
    Column("total", Integer, nullable=False, default=0),
    Column("completed", Integer, nullable=False, default=0),
    Column("failed", Integer, nullable=False, default=0),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    Column("errors", Text),  # JSON list: which lines were wrong and why
    Column("headers", Text),  # JSON object: what every line is sent with
    Column("model", String(200)),  # where all lines name the same
    Column("usage", Text),  # JSON object: tokens of all answers
    Column("unsent", Integer),  # of the failed lines, those that the batch's end kept from being sent
    Column("output_expires_s", Float),  # after the result files are made
    Column("cancelling_at", Float),
    Column("finalizing_at", Float),
    Column("idempotency", String(64), unique=True, index=True),  # digest of whose key it was and which
    Column("fingerprint", String(64)),  # of the request that came with it
)

responses = Table(
    "responses",
    metadata,
    Column("team", String(64), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("session", String(128), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("bytes", Integer, nullable=False),  # of the next two
    Column("body", LargeBinary, nullable=False),  # the Response object, JSON, compressed
    Column("input", LargeBinary, nullable=False),  # all items that it answered, JSON, compressed
)

response_items = Table(
    "response_items",
    metadata,
    Column("team", String(64), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("response_id", String(128), nullable=False),
    Index("ix_response_items_team_response_id", "team", "response_id"),
)
