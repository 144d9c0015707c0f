"""The names of all exported attributes. An attribute that OpenTelemetry defines has OpenTelemetry's name (`gen_ai.*`);
any other is named `thriftgate.*`.

Source: OpenTelemetry semantic conventions for generative AI (github.com/open-telemetry/semantic-conventions-genai, in
development status, read 2026-11).
"""

from __future__ import annotations

from typing import Final

from gateway.dialects.facts import FACTS
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt, Record
from gateway.domain.request import DialectName

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
"""The name of `CACHE_WRITE_TOKENS` in the conventions before mid-2026. Many trace viewers know only this older name."""
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105
ERROR_TYPE: Final = "error.type"

TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
REQUEST_DURATION: Final = "gen_ai.server.request.duration"
FIRST_TOKEN: Final = "gen_ai.server.time_to_first_token"  # noqa: S105

TEAM: Final = "thriftgate.team"
BACKEND: Final = "thriftgate.backend"
TIER: Final = "thriftgate.tier"
CACHE: Final = "thriftgate.cache"
DIFFICULTY: Final = "thriftgate.difficulty"
ESCALATED: Final = "thriftgate.escalated"
TRIMMED: Final = "thriftgate.trimmed_tokens"
COST: Final = "thriftgate.cost_usd"
REQUEST_ID: Final = "thriftgate.request_id"
DEGRADED: Final = "thriftgate.degraded"
OUTCOME: Final = "thriftgate.outcome"

Value = str | int | float | bool | list[str]


def operation(dialect: DialectName) -> str:
    """OpenTelemetry's name of the operation of a request in `dialect`. For passthrough dialects, this is the dialect's
    own name.
    """
    return FACTS[dialect].operation


def of_request(record: Record) -> dict[str, Value]:
    """Attributes of the span of one request. They contain no prompt and no key."""
    found: dict[str, Value] = {
        OPERATION: operation(record.dialect),
        REQUEST_MODEL: record.model,
        REQUEST_ID: record.request_id,
        TEAM: record.tenant.team,
        CACHE: record.cache,
        ESCALATED: record.escalated,
        TRIMMED: record.trimmed_tokens,
    }
    if record.difficulty is not None:
        found[DIFFICULTY] = record.difficulty
    if record.finish:
        found[FINISH_REASONS] = [record.finish]
    if record.cost_pico is not None:
        found[COST] = record.cost_pico / 1e12
    if record.degraded:
        found[DEGRADED] = sorted(record.degraded)
    if record.error:
        found[ERROR_TYPE] = record.error
    attempt = record.served_by
    if attempt is not None:
        found[BACKEND] = attempt.backend.name
        found[PROVIDER] = attempt.backend.provider_name
        found[RESPONSE_MODEL] = attempt.backend.model
        if attempt.usage is not None:
            found |= of_usage(attempt.usage)
    return found


def of_attempt(attempt: Attempt, asked: str) -> dict[str, Value]:
    """Attributes of the span of one backend call. `asked`: OpenTelemetry's name of the request's operation."""
    backend = attempt.backend
    found: dict[str, Value] = {
        OPERATION: asked,
        PROVIDER: backend.provider_name,
        REQUEST_MODEL: backend.model,
        BACKEND: backend.name,
        TIER: backend.tier,
        OUTCOME: attempt.outcome,
        INPUT_TOKENS: attempt.input_tokens,
        OUTPUT_TOKENS: 0,
    }
    if attempt.usage is not None:
        found |= of_usage(attempt.usage)
    if attempt.error:
        found[ERROR_TYPE] = attempt.error
    return found


def of_usage(usage: Usage) -> dict[str, Value]:
    """Token counts as attributes. Zeros are left out, except for input and output.

    `INPUT_TOKENS` includes cached tokens and cache writes. `OUTPUT_TOKENS` includes reasoning.
    """
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    found: dict[str, Value] = {INPUT_TOKENS: usage.all_input, OUTPUT_TOKENS: usage.all_output}
    if usage.cached_tokens:
        found[CACHE_READ_TOKENS] = usage.cached_tokens
    if written:
        found[CACHE_WRITE_TOKENS] = found[CACHE_CREATION_TOKENS] = written
    if usage.reasoning_tokens:
        found[REASONING_TOKENS] = usage.reasoning_tokens
    return found
