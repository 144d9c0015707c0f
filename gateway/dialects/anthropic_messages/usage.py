"""Reads `usage`: token classes, service tier, charges of server tools."""

from __future__ import annotations

from typing import Any

from gateway.dialects.answers import service_tiers
from gateway.dialects.answers.usage import Counts, Fees
from gateway.domain.money.usage import Usage

_COUNTED = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_USUAL_TIER = ("standard", None, None)
_UNITS = (("web_search_requests", "web_search"), ("code_execution_requests", "code_execution"))
"""Anthropic's name for the number of uses of a server tool → the name of the unit that is charged."""


def messages_usage(value: object) -> Usage | None:
    """Read a usage object; None if it contains no counts. Thinking is part of the output; the other token classes
    do not overlap.

    Impossible counts are named in `Usage.doubt`. Of two contradictory counts, the higher one is used.
    """
    if type(value) is not dict or value.keys().isdisjoint(_COUNTED):
        return None
    counts = Counts()
    fresh = counts.count(value.get("input_tokens"), "input_tokens")
    output = counts.count(value.get("output_tokens"), "output_tokens")
    read = counts.count(value.get("cache_read_input_tokens"), "cached_tokens")
    short, long = _written(value, counts)
    thinking = counts.count(_detail(value, "output_tokens_details", "thinking_tokens"), "reasoning_tokens")
    if thinking > output:
        counts.doubts.add("reasoning_tokens")
        output = thinking
    return Usage(
        input_tokens=fresh,
        cached_tokens=read,
        cache_write_5m_tokens=short,
        cache_write_1h_tokens=long,
        output_tokens=output - thinking,
        reasoning_tokens=thinking,
        service_tier=_tier(value),
        fees=_fees(value.get("server_tool_use")),
        doubt=counts.doubt,
    )


def _written(usage: dict[str, Any], counts: Counts) -> tuple[int, int]:
    """(Tokens written to the cache for five minutes, tokens written for one hour)."""
    written = counts.count(usage.get("cache_creation_input_tokens"), "cache_write_tokens")
    long = counts.count(_detail(usage, "cache_creation", "ephemeral_1h_input_tokens"), "cache_write_tokens")
    short = counts.count(_detail(usage, "cache_creation", "ephemeral_5m_input_tokens"), "cache_write_tokens")
    if written < short + long:
        if written:
            counts.doubts.add("cache_write_tokens")
        return short, long
    return written - long, long


def _detail(usage: dict[str, Any], group: str, name: str) -> object:
    details = usage.get(group)
    return details.get(name) if type(details) is dict else None


def _tier(usage: dict[str, Any]) -> str:
    tier = usage.get("service_tier"), usage.get("speed"), usage.get("inference_geo")
    return "" if tier == _USUAL_TIER else service_tiers.normalised(*tier)


def _fees(used: object) -> Fees:
    """The charged uses of server tools, as (unit, number). Web fetches are not charged, because they cost only their
    tokens."""
    if type(used) is not dict:
        return ()
    counted = ((unit, Counts().count(used.get(field), unit)) for field, unit in _UNITS)
    return tuple((unit, number) for unit, number in counted if number)
