"""Writes a request's response headers from its record: `x-thriftgate-*`, rate limits, relayed headers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from math import ceil

from gateway.api.relayed_headers import MOST_RELAYED, is_bounded
from gateway.dialects.facts import FACTS
from gateway.domain.backend import Backend
from gateway.domain.record import Record
from gateway.domain.text.concealment import Concealer
from gateway.domain.units import usd_text
from gateway.errors import GatewayError

_LIMITS = (b"x-ratelimit-", b"anthropic-ratelimit-")
_OF_BACKENDS = (b"openai-", *_LIMITS)
"""Prefixes of the backend response headers that a client may get. Headers without one of these prefixes are not
relayed."""
_WHOSE_ACCOUNT = frozenset((b"openai-organization", b"openai-project"))
"""Headers that name the gateway's account. They are not relayed."""
_SHORTEST_KEY = 8
"""Minimum bytes of a header's value in which the gateway's key is searched for. Most values of rate limits are shorter,
so they are not searched."""
_RFC_3339 = "%Y-%m-%dT%H:%M:%SZ"


def of_id(request_id: str) -> list[tuple[bytes, bytes]]:
    """The request id, under the names that the clients of OpenAI and Anthropic read."""
    value = request_id.encode()
    return [(b"x-request-id", value), (b"request-id", value)]


def of_record(record: Record) -> list[tuple[bytes, bytes]]:
    """The response headers that are known so far: ids, `x-thriftgate-*`, rate limits and the headers of the backend."""
    value = record.request_id.encode()
    found = [(b"x-request-id", value), (b"request-id", value), (b"x-thriftgate-cache", record.cache.encode())]
    if (served := record.served_by) is not None:
        backend = served.backend
        found += _of_backend(backend.name, backend.model)
        if served.headers:
            theirs = [pair for pair in served.headers if pair[0].startswith(_OF_BACKENDS)]
            found += islice((pair for pair in theirs if _may_pass(pair, record, backend)), MOST_RELAYED)
        if (usage := served.reported) is not None and usage.cached_tokens:
            found.append((b"x-thriftgate-cached-tokens", b"%d" % usage.cached_tokens))
        if (cap := served.output_cap or served.policy_cap) is not None:
            found.append((b"x-thriftgate-output-cap", b"%d" % cap))
    if record.difficulty is not None:
        found.append((b"x-thriftgate-difficulty", b"%.3f" % record.difficulty))
    if record.trimmed_tokens:
        found.append((b"x-thriftgate-trimmed-tokens", b"%d" % record.trimmed_tokens))
    if record.escalated:
        found.append((b"x-thriftgate-escalated", b"true"))
    if record.cost_pico is not None:
        found.append((b"x-thriftgate-cost-usd", usd_text(record.cost_pico).encode()))
    if record.of_gateway and served is not None and served.price_text:
        found.append((b"x-thriftgate-price", served.price_text.encode()))
    if record.degraded:
        found.append((b"x-thriftgate-degraded", ",".join(sorted(record.degraded)).encode()))
    if record.over_budget:
        found.append((b"x-thriftgate-over-budget", ",".join(record.over_budget).encode("latin-1", "replace")))
    if ratelimit := record.ratelimit:
        found += ratelimit.items()
        if FACTS[record.dialect].anthropic_limits:
            found += _as_anthropic(ratelimit)
    return found


def _may_pass(pair: tuple[bytes, bytes], record: Record, backend: Backend) -> bool:
    """Whether a header of the backend may be relayed to the client. Rate limits are relayed only if the team has none
    of its own."""
    name, value = pair
    if record.ratelimit if name.startswith(_LIMITS) else name in _WHOSE_ACCOUNT:
        return False
    return is_bounded(name, value) and not _tells_key(value, backend)


def _tells_key(value: bytes, backend: Backend) -> bool:
    """Whether a header of the backend contains the gateway's key at this backend."""
    if backend.api_key is None or len(value) < _SHORTEST_KEY:
        return False
    text = value.decode("latin-1")
    return _concealer(backend.api_key.get_secret_value())(text) != text


_concealer = lru_cache(maxsize=256)(Concealer)


def _as_anthropic(ratelimit: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """OpenAI's headers with Anthropic's names and values: `x-ratelimit-limit-requests` becomes
    `anthropic-ratelimit-requests-limit`, and durations become times."""
    found, now = [], time.time()
    for name, value in ratelimit.items():
        theirs = _anthropic_name(name)
        if theirs.endswith(b"-reset"):
            value = _rfc_3339(ceil(now + seconds(value.decode())))
        found.append((theirs, value))
    return found


@lru_cache(maxsize=64)
def _anthropic_name(name: bytes) -> bytes:
    what, _, of = name.removeprefix(_LIMITS[0]).partition(b"-")
    return b"anthropic-ratelimit-%b-%b" % (of, what)


@lru_cache(maxsize=64)
def _rfc_3339(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime(_RFC_3339).encode()


@lru_cache(maxsize=1024)
def seconds(duration: str) -> float:
    """The seconds of a duration such as `120ms`, `12.5s` or `1m0s`."""
    if duration.endswith("ms"):
        return float(duration[:-2]) / 1000
    minutes, _, rest = duration.removesuffix("s").rpartition("m")
    return float(minutes or 0) * 60 + float(rest or 0)


@lru_cache(maxsize=1024)
def _of_backend(name: str, model: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"x-thriftgate-backend", name.encode("latin-1", "replace")),
        (b"x-thriftgate-model", model.encode("latin-1", "replace")),
    )


def of_error(error: GatewayError) -> list[tuple[bytes, bytes]]:
    """Headers that tell clients whether and when to retry; none for an unexpected error."""
    if error.status == GatewayError.status:
        return []
    found = [(b"x-should-retry", b"true" if error.retryable else b"false")]
    if error.retry_after_s is not None:
        # Both values are rounded up, because a retry before this time is refused.
        milliseconds = max(1, ceil(error.retry_after_s * 1000))
        found.append((b"retry-after", b"%d" % -(-milliseconds // 1000)))
        found.append((b"retry-after-ms", b"%d" % milliseconds))
    return found
