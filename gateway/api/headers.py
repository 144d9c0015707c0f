"""A record as response headers."""

from __future__ import annotations

from math import ceil

from gateway.domain.record import Record
from gateway.domain.units import pico_to_usd
from gateway.errors import GatewayError


def of_record(record: Record) -> list[tuple[bytes, bytes]]:
    """`x-request-id`, `x-thriftgate-*` and `x-ratelimit-*`, as far as they are known now."""
    found = [(b"x-request-id", record.request_id.encode()), (b"x-thriftgate-cache", record.cache.encode())]

    def add(name: str, value: str) -> None:
        found.append((f"x-thriftgate-{name}".encode(), value.encode("latin-1", "replace")))

    if (served := record.served_by) is not None:
        add("backend", served.backend.name)
        add("model", served.backend.model)
    if record.difficulty is not None:
        add("difficulty", f"{record.difficulty:.3f}")
    if record.trimmed_tokens:
        add("trimmed-tokens", str(record.trimmed_tokens))
    if record.escalated:
        add("escalated", "true")
    if record.cost_pico is not None:
        add("cost-usd", f"{pico_to_usd(record.cost_pico):f}")
    if record.degraded:
        add("degraded", ",".join(sorted(record.degraded)))
    found += [(name.encode(), value.encode()) for name, value in record.ratelimit.items()]
    return found


def of_error(error: GatewayError) -> list[tuple[bytes, bytes]]:
    if error.retry_after_s is None:
        return []
    milliseconds = max(1, ceil(error.retry_after_s * 1000))  # rounded up: who comes earlier is refused again
    return [
        (b"retry-after", str(-(-milliseconds // 1000)).encode()),
        (b"retry-after-ms", str(milliseconds).encode()),
    ]
