"""A record as response headers."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from gateway.domain.record import Record
from gateway.domain.units import usd_text
from gateway.errors import GatewayError


def of_record(record: Record) -> list[tuple[bytes, bytes]]:
    """`x-request-id`, `x-thriftgate-*` and `x-ratelimit-*`, as far as they are known now."""
    found = [(b"x-request-id", record.request_id.encode()), (b"x-thriftgate-cache", record.cache.encode())]
    if (served := record.served_by) is not None:
        found += _of_backend(served.backend.name, served.backend.model)
    if record.difficulty is not None:
        found.append((b"x-thriftgate-difficulty", b"%.3f" % record.difficulty))
    if record.trimmed_tokens:
        found.append((b"x-thriftgate-trimmed-tokens", b"%d" % record.trimmed_tokens))
    if record.escalated:
        found.append((b"x-thriftgate-escalated", b"true"))
    if record.cost_pico is not None:
        found.append((b"x-thriftgate-cost-usd", usd_text(record.cost_pico).encode()))
    if record.degraded:
        found.append((b"x-thriftgate-degraded", ",".join(sorted(record.degraded)).encode()))
    for name, value in record.ratelimit.items():
        found.append((name.encode(), value.encode()))
    return found


@lru_cache(maxsize=1024)
def _of_backend(name: str, model: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"x-thriftgate-backend", name.encode("latin-1", "replace")),
        (b"x-thriftgate-model", model.encode("latin-1", "replace")),
    )


def of_error(error: GatewayError) -> list[tuple[bytes, bytes]]:
    if error.retry_after_s is None:
        return []
    milliseconds = max(1, ceil(error.retry_after_s * 1000))  # rounded up: who comes earlier is refused again
    return [
        (b"retry-after", str(-(-milliseconds // 1000)).encode()),
        (b"retry-after-ms", str(milliseconds).encode()),
    ]
