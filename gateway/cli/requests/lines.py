"""Formats requests as lines for people."""

from __future__ import annotations

from datetime import datetime, tzinfo

from gateway.domain.units import cents
from gateway.ledger.rows import Row


def money(pico: int | None) -> str:
    """Format a cost as `$0.0123`, or say that the price is unknown."""
    return "price unknown" if pico is None else f"${cents(pico)}".replace("$-", "-$")


def line(row: Row, zone: tzinfo) -> str:
    """A request as one line: time in the zone, team, model → backend, result, cache, tokens, duration, cost, id."""
    at, team, model, result, tokens, ms, cost, id = cells(row, zone)
    words = [at, team, model, result, f"{tokens} tokens", *([f"{ms} ms"] if ms else []), cost, id]
    return "  ".join(words)


def cells(row: Row, zone: tzinfo) -> tuple[str, ...]:
    """A request as the cells of a table: time in the zone, team, model → backend, result and cache, tokens,
    milliseconds, cost, id."""
    at = datetime.fromtimestamp(row.at, zone).strftime("%H:%M:%S")
    served = row.backend if row.attempt else "cache"
    asked = row.model_asked if row.model_asked in ("", served) else f"{row.model_asked} → {served}"
    result = row.outcome if row.outcome != "failed" else f"failed ({row.error or row.status})"
    if row.attempt > 1:
        result += f"  attempt {row.attempt}"
    if row.cache not in ("", "off", "miss"):
        result += f"  cache {row.cache}"
    cost = f"saved {money(row.saved_pico)}" if row.saved_pico and not row.attempt else money(row.cost_pico)
    ms = "" if row.duration_ms is None else f"{row.duration_ms:,.0f}"
    tokens = f"{row.usage.all_input:,}+{row.usage.all_output:,}"
    return at, row.team, asked or served, result, tokens, ms, cost, row.request_id
