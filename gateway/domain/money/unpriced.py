"""Finds the parts of a call that have no known price: fees (such as for web searches) and service tiers."""

from __future__ import annotations

from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage

TIER = "service_tier="


def unpriced_units(price: Price | None, usage: Usage) -> str:
    """The units of a call that have no price, as text such as `web_search:5,service_tier=scale`. Empty if the price
    covers the whole `usage`. If `price` is None, only fees are listed."""
    if not usage.fees and not usage.service_tier:
        return ""
    units = [f"{unit}:{count}" for unit, count in usage.fees if count]
    if price is not None and price.at(usage.service_tier) is None:
        units.append(TIER + usage.service_tier)
    return ",".join(units)


def fees_of(units: str) -> tuple[tuple[str, int], ...]:
    """The fees in a text that `unpriced_units` made, each as (unit, count)."""
    found = (part.rpartition(":") for part in units.split(",") if part and not part.startswith(TIER))
    return tuple((unit, int(count)) for unit, _, count in found)
