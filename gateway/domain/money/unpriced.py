"""Units without a known price that a call was charged for: fees, service tiers."""

from __future__ import annotations

from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage

TIER = "service_tier="


def unpriced_units(price: Price | None, usage: Usage) -> str:
    """`web_search:5,service_tier=scale`; empty where the price covers all that `usage` has.

    A tier is in it where its tokens were billed at the dearest tier for want of its own price. Without any price the
    cost is unknown as a whole, and only fees are named.
    """
    if not usage.fees and not usage.service_tier:
        return ""
    units = [f"{unit}:{count}" for unit, count in usage.fees if count]
    if price is not None and price.at(usage.service_tier) is None:
        units.append(TIER + usage.service_tier)
    return ",".join(units)


def fees_of(units: str) -> tuple[tuple[str, int], ...]:
    """The fees in what `unpriced_units` wrote."""
    found = (part.rpartition(":") for part in units.split(",") if part and not part.startswith(TIER))
    return tuple((unit, int(count)) for unit, _, count in found)
