"""All SQL tables. The migrations must produce the same tables (a test compares them)."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)


def name_partial_indexes() -> None:
    """Make the partial indexes of SQLite partial on PostgreSQL too. Call it before tables are made on PostgreSQL. An
    index that names PostgreSQL in its definition would load SQLAlchemy's PostgreSQL dialect (2 MiB) in every
    process."""
    for table in metadata.tables.values():
        for index in table.indexes:
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]


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
    Column("lineage", String(32), nullable=False, server_default=""),  # id of the first key of a chain of rotations
    Column("allowed_models", Text),  # comma-separated; NULL: all
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
    Column("at", Float, nullable=False, index=True),  # when the request began: all its attempts are in one window
    Column("organisation", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("key_id", String(32), nullable=False),  # of the first key of its lineage
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
    Column("prices", Text, nullable=False, server_default=""),  # applied prices: CLASS=PICO-DOLLARS PER TOKEN …
    Column("received_bytes", BigInteger, nullable=False, server_default="0"),
    Column("sent_bytes", BigInteger, nullable=False, server_default="0"),
    Column("end_user", String(32), nullable=False, server_default=""),  # a pseudonym
    Column("cost_centre", String(64), nullable=False, server_default=""),
    Column("kind", String(16), nullable=False, server_default=""),  # "" | hedge | shadow | keep_alive | summary | idle
    Column("audio_input_tokens", Integer, nullable=False, server_default="0"),
    Column("image_input_tokens", Integer, nullable=False, server_default="0"),
    Column("image_tokens", Integer, nullable=False, server_default="0"),
    Column("supersedes", String(80), nullable=False, server_default=""),  # id of the row that this one replaces
    # The backends that routing chose if another one answered (observe mode, hold-out). Empty: the choice answered, or
    # routing had no choice.
    Column("decided", String(200), nullable=False, server_default=""),  # backends, in the order of routing's choice
    Column("decided_pico", BigInteger),  # expected cost of these tokens there; NULL: unpriced
    Column("decided_ppm", Integer, nullable=False, server_default="0"),  # expected adequacy, in millionths
    Column("service_tier", String(128), nullable=False, server_default=""),  # of the provider; empty: the standard one
    Column("unpriced", Text, nullable=False, server_default=""),  # units without a price: web_search:5,service_tier=…
    Column("doubt", String(200), nullable=False, server_default=""),  # contradictions in the reported numbers
    Column("waited_ms", Integer, nullable=False, server_default="0"),  # from `at` to the call; 0: below a second
    Column("above_ceiling", Boolean, nullable=False, server_default=text("false")),  # dearer than the named model
    Column("agent", String(16), nullable=False, server_default=""),  # coding agent: claude_code, codex …
    Column("traffic_class", String(32), nullable=False, server_default=""),  # language/needs/step
    Column("chain", String(16), nullable=False, server_default=""),  # of the writer; empty: older than chains
    Column("chain_seq", BigInteger),
    Column("chain_hash", LargeBinary(32)),
    Index("ix_ledger_team_at", "team", "at"),
    Index("ix_ledger_session", "session", sqlite_where=text("session <> ''")),
    Index("ix_ledger_chain_chain_seq", "chain", "chain_seq", unique=True),
    Index("ix_ledger_supersedes", "supersedes", sqlite_where=text("supersedes <> ''")),
)

ledger_chains = Table(
    "ledger_chains",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("begun_at", Float, nullable=False),
    Column("outside", BigInteger, nullable=False),  # rows in no chain when this one began, removed ones too
    Column("seq", BigInteger, nullable=False),  # of the newest entry
    Column("hash", LargeBinary(32), nullable=False),  # likewise
)

ledger_rollups = Table(
    "ledger_rollups",
    metadata,
    # Roll-ups: raw rows that were replaced by sums. Each is an entry in the chain of the writer that made it.
    Column("id", String(40), primary_key=True),  # chain-seq
    Column("at", Float, nullable=False),
    Column("of_chain", String(16), nullable=False),  # whose rows; empty: rows in no chain
    Column("first_seq", BigInteger),
    Column("last_seq", BigInteger),
    Column("before_hash", LargeBinary(32)),  # of the entry before first_seq
    Column("after_hash", LargeBinary(32)),  # of the entry at last_seq
    Column("rows", BigInteger, nullable=False),
    Column("sums", Integer, nullable=False),  # rows of ledger_sums
    Column("sums_hash", LargeBinary(32), nullable=False),  # of those, in their order
    Column("chain", String(16), nullable=False),
    Column("chain_seq", BigInteger, nullable=False),
    Column("chain_hash", LargeBinary(32), nullable=False),
    Index("ix_ledger_rollups_chain_chain_seq", "chain", "chain_seq", unique=True),
    Index("ix_ledger_rollups_of_chain_first_seq", "of_chain", "first_seq"),
)

ledger_sums = Table(
    "ledger_sums",
    metadata,
    # Sums of the raw rows that a roll-up replaced, by quarter hours. Columns with a ledger column's name mean the same.
    Column("rollup", String(40), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False, index=True),  # start of the quarter hour (time zones differ by those)
    Column("request_id", String(48), nullable=False, index=True),  # stands for `requests` requests; 0: for its own
    Column("requests", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),  # raw rows
    Column("attempt", Integer, nullable=False),  # 0: answered without a backend; else 1
    Column("organisation", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("key_id", String(32), nullable=False),
    Column("end_user", String(32), nullable=False),
    Column("cost_centre", String(64), nullable=False),
    Column("tags", Text, nullable=False),
    Column("dialect", String(32), nullable=False),
    Column("model_asked", String(200), nullable=False),
    Column("backend", String(200), nullable=False),
    Column("model", String(200), nullable=False),
    Column("tier", String(16), nullable=False),
    Column("region", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("cache", String(16), nullable=False),
    Column("difficulty", Float),  # to one decimal
    Column("escalated", Boolean, nullable=False),
    Column("estimated", Boolean, nullable=False),
    Column("price_source", String(200), nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("cache_write_5m_tokens", BigInteger, nullable=False),
    Column("cache_write_1h_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("audio_tokens", BigInteger, nullable=False),
    Column("audio_input_tokens", BigInteger, nullable=False),
    Column("image_input_tokens", BigInteger, nullable=False),
    Column("image_tokens", BigInteger, nullable=False),
    Column("trimmed_tokens", BigInteger, nullable=False),
    Column("received_bytes", BigInteger, nullable=False),
    Column("sent_bytes", BigInteger, nullable=False),
    Column("cost_pico", BigInteger),
    Column("saved_pico", BigInteger),
    Column("decided", String(200), nullable=False, server_default=""),
    Column("decided_pico", BigInteger),
    Column("decided_ppm", BigInteger, nullable=False, server_default="0"),
    Column("service_tier", String(128), nullable=False, server_default=""),
    Column("unpriced", Text, nullable=False, server_default=""),
    Column("agent", String(16), nullable=False, server_default=""),
    Column("traffic_class", String(32), nullable=False, server_default=""),
    Index("ix_ledger_sums_team_at", "team", "at"),
)

end_users = Table(
    "end_users",
    metadata,
    Column("pseudonym", String(32), primary_key=True),
    Column("team", String(64), primary_key=True),
    Column("name", String(512)),  # as the client sent it; NULL: erased, and not to be stored again
    Column("seen_at", Float, nullable=False),
)

journal_offsets = Table(
    "journal_offsets",
    metadata,
    # Position from which the writer reads a worker's journal next, updated in the transaction that writes the rows.
    Column("lane", String(120), primary_key=True),  # the journal of one worker process
    Column("segment", Integer, nullable=False),  # number of the file
    Column("position", BigInteger, nullable=False),  # bytes
    Column("updated_at", Float, nullable=False),
)

drained_workers = Table(
    "drained_workers",
    metadata,
    # Workers that have ended and whose whole journal is in the ledger: budgets hold nothing for them.
    Column("worker", String(128), primary_key=True),  # the name under which it leased
    Column("at", Float, nullable=False),
    Column("actor", String(64), nullable=False, server_default=""),  # the operator who declared its journal lost
)

orphaned_holds = Table(
    "orphaned_holds",
    metadata,
    # Units that counters hold for dead workers that are not drained.
    Column("worker", String(128), primary_key=True),
    Column("counter", String(400), primary_key=True),  # its key on the state server
    Column("tag", String(160), nullable=False),  # the budget's owner
    Column("units", BigInteger, nullable=False),  # nano-dollars or tokens
    Column("limit_units", BigInteger, nullable=False),
    Column("since", Float, nullable=False),
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
    Column("kind", String(32), nullable=False, server_default="threshold"),
    Column("severity", String(16), nullable=False, server_default="warning"),
    # Used in the alert's own row only, whose target is empty:
    Column("acknowledged_by", String(64), nullable=False, server_default=""),
    Column("acknowledged_at", Float),
    Column("escalate_at", Float),  # NULL: not to be escalated, or done
    Column("dead_at", Float),  # of a delivery: when it was given up
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
    Column(
        "predicted", Float
    ),  # the prior's adequacy of the backend for this request; NULL: the backend is the reference, or unknown
    Column("target", Float),  # the adequacy that routing promised, 1 for the reference; NULL: unknown
    Index("ix_feedback_key_id_at", "key_id", "at"),
    Index("ix_feedback_team_backend_id", "team", "backend", "id"),
)

evidence = Table(
    "evidence",
    metadata,
    # Comparisons of a backend's answer with the reference's.
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("request_id", String(48), nullable=False, index=True),
    Column("team", String(64), nullable=False),
    Column("backend", String(200), nullable=False),  # its answer is judged
    Column("reference", String(200), nullable=False),  # its answer is the standard
    Column("source", String(16), nullable=False),  # shadow | probe | holdout | observe | cascade | escalation | class
    Column("judge", String(200), nullable=False),
    Column("predicted", Float, nullable=False),  # the prior's adequacy of the backend for this request
    Column("target", Float, nullable=False),  # the adequacy that routing promised
    Column("score", Float, nullable=False),  # 0..1; 1: as good as the reference's
    Column("weight", Float, nullable=False),  # 0: not a random sample of the backend's answers
    Column(
        "plans", Text, nullable=False, server_default="{}"
    ),  # JSON: artefact → backends it would have asked, and the cost
    Column("traffic_class", String(32), nullable=False, server_default=""),  # language/needs/step
    Index("ix_evidence_team_backend_id", "team", "backend", "id"),
    Index("ix_evidence_at", "at"),
)

class_trials = Table(
    "class_trials",
    metadata,
    # How far a traffic class is open for a cheaper backend (domain/routing/class_trial.py).
    Column("team", String(64), primary_key=True),
    Column("traffic_class", String(32), primary_key=True),
    Column("backend", String(200), primary_key=True),
    Column("reference", String(200), primary_key=True),
    Column("target", Float, primary_key=True),  # the quality that the policy requires
    Column("at", Float, nullable=False),  # time of the latest comparison, Unix seconds
    Column("stage", Integer, nullable=False),
    Column("state", Text, nullable=False),  # JSON: the statistics
    Index("ix_class_trials_at", "at"),
)

shadow_spend = Table(
    "shadow_spend",
    metadata,
    # Cost of comparisons in a window, and the most that calls in progress may still cost.
    Column("period", String(40), primary_key=True),  # the window's kind and start
    Column("team", String(64), primary_key=True),  # empty: all teams
    Column("held_pico", BigInteger, nullable=False),
    Column("spent_pico", BigInteger, nullable=False),
    Column("calls", Integer, nullable=False),
)

hit_checks = Table(
    "hit_checks",
    metadata,
    # Semantic look-ups, and the result of comparing some of their hits with fresh answers.
    Column("team", String(64), primary_key=True),  # of the requests
    Column("at", BigInteger, primary_key=True, autoincrement=False),  # when the quarter of an hour began, Unix seconds
    Column("lookups", BigInteger, nullable=False),
    Column("hits", BigInteger, nullable=False),
    Column("checked", BigInteger, nullable=False),
    Column("wrong", BigInteger, nullable=False),
    Column("undecided", BigInteger, nullable=False),  # compared without a clear result
    Column("called_wrong", BigInteger, nullable=False),  # by the clients that got them
    Column("weight", Float, nullable=False),  # hits that the checked ones stand for
    Column("weight_squared", Float, nullable=False),
    Column("weight_wrong", Float, nullable=False),
)

artefacts = Table(
    "artefacts",
    metadata,
    # Plans for routing; at most one is live and one in shadow.
    Column("id", String(64), primary_key=True),  # SHA-256 of the file
    Column("body", LargeBinary, nullable=False),  # the file
    Column("state", String(16), nullable=False),  # shadow | live | previous | refused | retired
    Column("at", Float, nullable=False),  # since when it has been in that state
    Column("why", String(300), nullable=False, default=""),
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
    Column("owner", String(32), nullable=False, server_default=""),  # lineage of a key; empty: the whole team's
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
    Column("model", String(200)),  # NULL: lines name different ones
    Column("usage", Text),  # JSON object: tokens of all answers
    Column("unsent", Integer),  # failed lines that were not sent, because the batch ended
    Column("output_expires_s", Float),  # time to live of the result files
    Column("cancelling_at", Float),
    Column("finalizing_at", Float),
    Column("idempotency", String(64), unique=True, index=True),  # digest of API key and idempotency key
    Column("fingerprint", String(64)),  # of the request with that idempotency key
    Column("owner", String(32), nullable=False, server_default=""),  # lineage of a key; empty: the whole team's
)

responses = Table(
    "responses",
    metadata,
    Column("team", String(64), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("session", String(128), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("bytes", Integer, nullable=False),  # size of `body` and `input`
    Column("body", LargeBinary, nullable=False),  # the Response object, JSON, compressed
    Column("input", LargeBinary, nullable=False),  # all items of its conversation, JSON, compressed
    Column("owner", String(32), nullable=False, server_default=""),  # lineage of a key; empty: the whole team's
)

response_items = Table(
    "response_items",
    metadata,
    Column("team", String(64), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("response_id", String(128), primary_key=True),
    Index("ix_response_items_team_response_id", "team", "response_id"),
)

samples = Table(
    "samples",
    metadata,
    Column("team", String(64), primary_key=True),
    Column("request_id", String(48), primary_key=True),
    Column("at", Float, nullable=False),
    Column("expires_at", Float, nullable=False, index=True),
    Column("traffic_class", String(32), nullable=False),
    Column("bytes", Integer, nullable=False),  # size of `body`
    Column("body", LargeBinary, nullable=False),  # the request and its answers as chat, JSON, compressed
)

ledger_days = Table(
    "ledger_days",
    metadata,
    Column("team", String(64), primary_key=True),  # empty: all teams
    Column("since", BigInteger, primary_key=True),
    Column("until", BigInteger, primary_key=True),
    Column("rows", Integer, nullable=False),  # of `ledger` in that time; with other numbers, `body` is outdated
    Column("sums", Integer, nullable=False),  # of `ledger_sums` in that time
    Column("body", LargeBinary, nullable=False),  # figures of the dashboard, JSON, compressed
)
