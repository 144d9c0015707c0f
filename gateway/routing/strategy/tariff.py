"""Cost of a strategy at current prices: machine load, warm prefixes, price changes.

A plan knows what each of its strategies spent on whom at the prices that it was fitted with. Prices of now are told as
ratios to those, in steps, so that the frontier has to be worked out anew only when one of them changes noticeably.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gateway.routing.strategy.strategy import Strategy

Tariff = tuple[tuple[str, int], ...]
"""Model → steps by which a call costs more than when the plan was fitted; models at that price are left out. Of a model
that was free then, the steps from one US dollar a call."""

STEP = 0.1
"""Of the natural logarithm: up to 5 % off, a price counts as the same."""
LEAST_USD = 1e-12


def steps(live_usd: float, fitted_usd: float) -> int | None:
    """None: the same price. Both: US dollars of one and the same call."""
    if fitted_usd > 0:
        return round(math.log(max(live_usd, LEAST_USD) / fitted_usd) / STEP) or None
    return round(math.log(live_usd) / STEP) if live_usd > 0 else None


def repriced_usd(strategy: Strategy, tariff: Mapping[str, int]) -> float:
    """US dollars a request."""
    usd = strategy.usd
    for model, asks in strategy.asks.items():
        change = tariff.get(model)
        if change is not None:
            usd += (asks.usd or asks.calls) * math.exp(change * STEP) - asks.usd
    return max(usd, 0.0)
