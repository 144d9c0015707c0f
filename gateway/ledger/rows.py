"""One row of the ledger. Its first values are known when an attempt starts, the other values when the attempt ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from gateway.domain.money.pace import FIRST_FRAME_BYTES, streamed_tokens
from gateway.domain.money.unpriced import fees_of
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt, Outcome, Record

MOST_TOKENS = 2**31 - 1
MOST_PICO = 2**63 - 1
"""Maximum values of the columns. A usage with larger numbers is ignored."""
MOST_DECIDED = 200
"""Maximum characters of the column `decided`."""
MOST_TIER, MOST_DOUBT = 128, 200
"""Maximum characters of the columns `service_tier` and `doubt`."""


class Row(NamedTuple):
    """A row of table `ledger`: its columns in the order of the journal, without the columns of the hash chain. Times
    are Unix seconds, money is pico-dollars. Append new columns only at the end, because the hashes of existing rows
    must not change.

    `at`: start of the request. It is equal for all attempts of a request, so that they are in the same budget window.
    The attempt's call began `waited_ms` later.
    """

    id: str
    request_id: str
    attempt: int
    at: float
    organisation: str
    team: str
    key_id: str
    session: str = ""
    dialect: str = ""
    cache: str = ""
    model_asked: str = ""
    backend: str = ""
    model: str = ""
    tier: str = ""
    region: str = ""
    outcome: str = ""
    status: int | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_pico: int | None = None
    price_source: str = ""
    first_byte_ms: float | None = None
    duration_ms: float | None = None
    prices: str = ""
    received_bytes: int = 0
    sent_bytes: int = 0
    stream: bool = False
    end_user: str = ""
    cost_centre: str = ""
    difficulty: float | None = None
    trimmed_tokens: int = 0
    tags: str = "{}"
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    error: str = ""
    estimated: bool = False
    escalated: bool = False
    saved_pico: int | None = None
    simulated: bool = False
    audio_tokens: int = 0
    kind: str = ""
    audio_input_tokens: int = 0
    image_input_tokens: int = 0
    image_tokens: int = 0
    supersedes: str = ""
    decided: str = ""
    decided_pico: int | None = None
    decided_ppm: int = 0
    service_tier: str = ""
    unpriced: str = ""
    doubt: str = ""
    waited_ms: int = 0
    above_ceiling: bool = False
    agent: str = ""
    traffic_class: str = ""

    @property
    def called_at(self) -> float:
        """Unix time at which the call of the backend began."""
        return self.at + self.waited_ms / 1000

    @property
    def usage(self) -> Usage:
        return Usage(
            **{name: getattr(self, name) for name in TOKENS},
            estimated=self.estimated,
            service_tier=self.service_tier,
            fees=fees_of(self.unpriced),
            doubt=self.doubt,
        )

    @classmethod
    def of(cls, values: Values) -> Row:
        return cls._make(values + _RARE[len(values) - LEAST :])


Values = tuple[Any, ...]
"""The first values of a Row; there are at least `LEAST` values. The other columns have their defaults."""
FIELDS = list(Row._fields)
TOKENS = tuple(name for name in FIELDS if name.endswith("_tokens") and name != "trimmed_tokens")
"""The token classes. Each token belongs to exactly one of them."""
LEAST = FIELDS.index("stream")
"""Minimum number of values in a row of the journal."""
_RARE = tuple(Row._field_defaults[name] for name in FIELDS[LEAST:])
_COMMON = _RARE[:-1]
_STEP = 7
"""Number of columns that are compared at once."""
_UNDECIDED = ("", None, 0)
_ASKED = (
    *("stream", "end_user", "cost_centre", "difficulty", "trimmed_tokens", "tags", "simulated", "kind"),
    *("service_tier", "waited_ms", "above_ceiling", "agent"),
)
_UNASKED = tuple(Row._field_defaults[name] for name in _ASKED)


def opening(attempt: Attempt, record: Record) -> tuple[Any, ...]:
    """The row's first values, which are known before `attempt` ends."""
    tenant, backend = record.tenant, attempt.backend
    key = tenant.key
    return (
        attempt.id,
        record.request_id,
        attempt.number,
        record.started_at,
        tenant.organisation,
        key.team,
        key.lineage,
        record.session,
        record.dialect,
        record.cache,
        record.model,
        backend.name,
        backend.model,
        backend.tier,
        backend.region,
    )


def asked(attempt: Attempt, record: Record) -> dict[str, Any]:
    """The columns from `stream` to `agent`, which are known when the attempt starts: column name → value. Empty if all
    have their defaults."""
    facts = (
        record.stream,
        record.end_user,
        record.tenant.policy.cost_centre,
        record.difficulty,
        attempt.trimmed_tokens,
        _tags(record) if record.tags else "{}",
        attempt.backend.simulated,
        attempt.kind,
        attempt.service_tier,
        0 if attempt.number == 1 and attempt.started_at - record.started_at < 1 else _waited_ms(attempt, record),
        attempt.above_ceiling,
        record.agent,
    )
    return {} if facts == _UNASKED else dict(zip(_ASKED, facts, strict=True))


def with_class(values: Values, traffic_class: str) -> Values:
    """All values of a row. The journal stores the traffic class separately; this function inserts it at its
    position."""
    return (*(values + _RARE[len(values) - LEAST :])[:-1], traffic_class)


class Decided(NamedTuple):
    """The choice that routing would have made, for an answer that came from another backend. This happens if the policy
    only observes, if the request is outside the rollout, or if the request serves for comparison."""

    names: str
    """Names of the backends that routing would have called, separated by commas."""
    cost_pico: int | None
    """Expected cost of the answer's tokens on those backends; None if a price is unknown."""
    ppm: int
    """The adequacy that routing expected, in millionths: the probability that the answer is as good as the
    reference's."""


def ending(
    attempt: Attempt, record: Record, usage: Usage, prices: str, decided: Decided | None = None, *, usual: bool = False
) -> tuple[Any, ...]:
    """The row's last values, which follow the values of `opening`. The traffic class and trailing default values are
    left out. `prices`: the unit prices of the cost, as text from `applied.text_of`. `usual`: whether `asked` returned
    nothing for the attempt."""
    started, first, ended = attempt.started_at, attempt.first_byte_at, attempt.ended_at
    common = (
        attempt.outcome,
        attempt.status,
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        attempt.cost_pico,
        attempt.price_source,
        None if first is None else round((first - started) * 1e6) / 1000,
        None if ended is None else round((ended - started) * 1e6) / 1000,
        prices,
        attempt.output_bytes,
        attempt.sent_bytes,
    )
    if (
        usual
        and attempt.outcome == "ok"
        and usage.is_plain
        and decided is None
        and not (attempt.kind or attempt.error or attempt.unpriced or record.escalated)
    ):
        return common
    rare = (
        record.stream,
        record.end_user,
        record.tenant.policy.cost_centre,
        record.difficulty,
        attempt.trimmed_tokens,
        _tags(record) if record.tags else "{}",
        *(usage.cache_write_5m_tokens, usage.cache_write_1h_tokens, usage.reasoning_tokens),
        attempt.error,
        usage.estimated,
        record.escalated or attempt.outcome == "escalated",
        *(None, attempt.backend.simulated, usage.audio_tokens, attempt.kind),
        *(usage.audio_input_tokens, usage.image_input_tokens, usage.image_tokens),
        "",
        *(_UNDECIDED if decided is None else decided),
        usage.service_tier and usage.service_tier[:MOST_TIER],
        attempt.unpriced,
        usage.doubt and usage.doubt[:MOST_DOUBT],
        0 if attempt.number == 1 and started - record.started_at < 1 else _waited_ms(attempt, record),
        attempt.above_ceiling,
        record.agent,
    )
    return common if rare == _COMMON else common + _unusual(rare)


def from_cache(record: Record, usage: Usage, saved_pico: int | None, outcome: Outcome = "ok") -> tuple[Any, ...]:
    """All values of the row for an answer from the cache: attempt number 0, cost 0, and the answer's tokens."""
    tenant = record.tenant
    rare = (
        record.stream,
        record.end_user,
        tenant.policy.cost_centre,
        None,
        0,
        _tags(record),
        *(usage.cache_write_5m_tokens, usage.cache_write_1h_tokens, usage.reasoning_tokens),
        *("", usage.estimated, False, saved_pico, False, usage.audio_tokens, ""),
        *(usage.audio_input_tokens, usage.image_input_tokens, usage.image_tokens),
        "",
        *_UNDECIDED,
        *("", "", "", 0, False, record.agent),
    )
    return (
        f"{record.request_id}-0",
        record.request_id,
        0,
        record.started_at,
        tenant.organisation,
        tenant.key.team,
        tenant.key.lineage,
        record.session,
        record.dialect,
        record.cache,
        record.model,
        *("", "", "", ""),
        outcome,
        None,
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        0,
        "",
        None,
        None,
        "",
        0,
        0,
        *_unusual(rare),
    )


def _unusual(rare: tuple[Any, ...]) -> tuple[Any, ...]:
    """`rare` (the columns from `stream` to `agent`) without the default values at its end."""
    if rare[1:] == _COMMON[1:]:  # a stream without unusual values
        return rare[:1]
    length = len(rare)
    while length > _STEP and rare[length - _STEP : length] == _RARE[length - _STEP : length]:
        length -= _STEP
    while length and rare[length - 1] == _RARE[length - 1]:
        length -= 1
    return rare[:length]


def _waited_ms(attempt: Attempt, record: Record) -> int:
    """Milliseconds from the start of the request to the call of the backend. For a first attempt, a time below one
    second is returned as 0."""
    waited_s = attempt.started_at - record.started_at
    if waited_s < 1 and (attempt.number in (1, record.before + 1)):
        return 0
    return min(max(0, round(waited_s * 1000)), MOST_TOKENS)


def _tags(record: Record) -> str:
    return orjson.dumps(record.tags, option=orjson.OPT_SORT_KEYS).decode() if record.tags else "{}"


def usage_of(attempt: Attempt) -> Usage:
    """The usage that the backend reported. If the backend reported none, the usage is estimated from the delivered
    text. For a failed attempt, it is no tokens."""
    usage = attempt.usage
    if usage is not None and believable(usage):
        if usage.estimated and attempt.service_tier and not usage.service_tier:
            return replace(usage, service_tier=attempt.service_tier)
        return usage
    if usage is None and attempt.outcome == "failed":
        return Usage()
    frame_bytes = FIRST_FRAME_BYTES if attempt.pace is None else attempt.pace.frame_bytes
    delivered = streamed_tokens(attempt.chunks, attempt.output_bytes, frame_bytes)
    return Usage(attempt.input_tokens, output_tokens=delivered, estimated=True, service_tier=attempt.service_tier)


def believable(usage: Usage) -> bool:
    """Return whether all token counts are between 0 and `MOST_TOKENS`. This limit has only ones in binary, so the
    counts can be combined with `|` and tested together."""
    joined = (
        usage.input_tokens
        | usage.cached_tokens
        | usage.cache_write_5m_tokens
        | usage.cache_write_1h_tokens
        | usage.output_tokens
        | usage.reasoning_tokens
        | usage.audio_tokens
        | usage.audio_input_tokens
        | usage.image_input_tokens
        | usage.image_tokens
    )
    return 0 <= joined <= MOST_TOKENS
