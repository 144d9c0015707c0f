"""One row of the ledger: what is known when an attempt opens, what its end adds, what an orphan is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from gateway.domain.price import Price
from gateway.domain.record import Attempt, Record
from gateway.domain.usage import Usage

MOST_TOKENS = 2**31 - 1
MOST_PICO = 2**63 - 1
"""What the columns hold. A backend that reports more is not believed."""
FRAME_BYTES = 320
"""Of a streamed event is wire format and not text, at most: OpenAI's with fingerprint and empty usage."""
SILENT_EVENTS = 3
"""A stream has so many that carry no text: who speaks, why it ended, what was used."""
BYTES_PER_TOKEN = 4


class Row(NamedTuple):
    """The `ledger` table's columns, in the order in which the journal writes them.

    Times are Unix seconds, money pico-dollars. Up to `trimmed_tokens` a row is known when its attempt opens. The
    defaults are for rows that another version wrote.
    """

    id: str
    request_id: str
    attempt: int
    at: float
    organisation: str
    team: str
    key_id: str
    session: str = ""
    tags: str = ""
    dialect: str = ""
    cache: str = ""
    model_asked: str = ""
    stream: bool = False
    backend: str = ""
    model: str = ""
    tier: str = ""
    region: str = ""
    simulated: bool = False
    difficulty: float | None = None
    trimmed_tokens: int = 0
    outcome: str = ""
    status: int | None = None
    error: str = ""
    escalated: bool = False
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    estimated: bool = False
    cost_pico: int | None = None
    saved_pico: int | None = None
    price_source: str = ""
    first_byte_ms: float | None = None
    duration_ms: float | None = None


_USAGE = Row._fields[Row._fields.index("input_tokens") : Row._fields.index("estimated") + 1]


def opening(attempt: Attempt, record: Record) -> tuple[Any, ...]:
    """The fields of a Row that stay true of `attempt` whatever becomes of it."""
    backend = attempt.backend
    return (
        *_asked(attempt.id, attempt.number, attempt.started_at, record),
        backend.name,
        backend.model,
        backend.tier,
        backend.region,
        backend.kind == "simulated",
        record.difficulty,
        attempt.trimmed_tokens,
    )


def ending(attempt: Attempt, record: Record, usage: Usage) -> tuple[Any, ...]:
    """The fields that are only known at the end, cost included."""
    started, first, ended = attempt.started_at, attempt.first_byte_at, attempt.ended_at
    return (
        attempt.outcome,
        attempt.status,
        attempt.error,
        record.escalated or attempt.outcome == "escalated",
        *_tokens(usage),
        attempt.cost_pico,
        None,
        attempt.price_source,
        None if first is None else round((first - started) * 1000, 3),
        None if ended is None else round((ended - started) * 1000, 3),
    )


def from_cache(record: Record, usage: Usage, saved_pico: int | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """An answer that no backend was asked for: attempt 0, cost 0, tokens that were not bought again."""
    asked = _asked(f"{record.request_id}-0", 0, record.started_at, record)
    no_backend = ("", "", "", "", False, None, 0)
    return (*asked, *no_backend), ("ok", None, "", False, *_tokens(usage), 0, saved_pico)


def _asked(id: str, number: int, at: float, record: Record) -> tuple[Any, ...]:
    tenant = record.tenant
    return (
        id,
        record.request_id,
        number,
        at,
        tenant.policy.organisation,
        tenant.key.team,
        tenant.key.id,
        record.session,
        orjson.dumps(record.tags, option=orjson.OPT_SORT_KEYS).decode() if record.tags else "{}",
        record.dialect,
        record.cache,
        record.model,
        record.stream,
    )


def _tokens(usage: Usage) -> tuple[int, int, int, int, int, int, int, bool]:
    return (
        usage.input_tokens,
        usage.cached_tokens,
        usage.cache_write_5m_tokens,
        usage.cache_write_1h_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.audio_tokens,
        usage.estimated,
    )


def usage_of(attempt: Attempt) -> Usage:
    """What the attempt reported, else what it can be seen to have cost; a failed attempt delivered nothing."""
    usage = attempt.usage
    if usage is None and attempt.outcome == "failed":
        return Usage()
    if usage is None or not _believable(usage):
        delivered = output_tokens(attempt.chunks, attempt.output_bytes)
        return Usage(attempt.input_tokens, output_tokens=delivered, estimated=True)
    return usage


def _believable(usage: Usage) -> bool:
    counts = _tokens(usage)[:-1]
    return min(counts) >= 0 and max(counts) <= MOST_TOKENS


def output_tokens(chunks: int, output_bytes: int) -> int:
    """An estimate for a stream that nobody saw the end of: a token an event, more where events carry much text."""
    text_bytes = output_bytes - (chunks + SILENT_EVENTS) * FRAME_BYTES
    return max(chunks, text_bytes // BYTES_PER_TOKEN, 0)


def rates(price: Price, input_tokens: int) -> tuple[int, int]:
    """Cost of so much input, and of each output token after it."""
    tier = price.beyond[1] if price.beyond is not None and input_tokens > price.beyond[0] else price
    return input_tokens * tier.input, tier.output


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a stream had come at a time; None where only how far is known."""

    at: float | None
    chunks: int
    output_bytes: int


def orphan(opened: dict[str, Any], entry: dict[str, Any], mark: Mark | None) -> Row:
    """The row of an attempt whose worker died: interrupted, with what was delivered at the last mark.

    `opened` is the row's beginning. `entry` is its *opened* line: `tokens` of input, and if it has a price `pico` (of
    the input, of each output token) and its `source`.
    """
    delivered = 0 if mark is None else output_tokens(mark.chunks, mark.output_bytes)
    input_pico, output_pico = entry.get("pico", (None, 0))
    usage = Usage(entry["tokens"], output_tokens=delivered, estimated=True)
    tokens: dict[str, Any] = dict(zip(_USAGE, _tokens(usage), strict=True))
    return Row(
        **opened,
        **tokens,
        outcome="interrupted",
        status=None,
        error="the gateway's worker ended",
        escalated=False,
        cost_pico=None if input_pico is None else min(input_pico + delivered * output_pico, MOST_PICO),
        price_source=entry.get("source", ""),
        duration_ms=None if mark is None or mark.at is None else round((mark.at - opened["at"]) * 1000, 3),
    )
