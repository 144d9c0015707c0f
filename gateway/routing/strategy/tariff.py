"""Computes the cost of a strategy at present prices, which depend on the load of machines, on cached prompts and on
changes of price lists.

For each strategy, a plan has the cost of each model's calls at the prices at the time of the fit (the fitted prices).
Present prices are expressed as ratios to the fitted prices. The ratios are rounded to steps, so that the frontier is
computed again only when a price changes noticeably.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gateway.routing.strategy.strategy import Strategy

Tariff = tuple[tuple[str, int], ...]
"""Model → number of steps between the fitted price of a call and the present price; negative if the call is cheaper
now. Models at the fitted price are omitted. If the fitted price is 0, the steps are counted from a price of one US
dollar per call."""

STEP = 0.1
"""Size of a step, as a difference of natural logarithms of the price. Changes of up to 5 % do not count."""
LEAST_USD = 1e-12


def steps(live_usd: float, fitted_usd: float) -> int | None:
    """The number of steps from the fitted price of a call to its present price; None if the price has hardly
    changed. A fitted price of 0 counts as 1 USD. `live_usd`, `fitted_usd`: the price of the call in US dollars, now and
    at the fit."""
    if fitted_usd > 0:
        return round(math.log(max(live_usd, LEAST_USD) / fitted_usd) / STEP) or None
    return round(math.log(live_usd) / STEP) if live_usd > 0 else None


def repriced_usd(strategy: Strategy, tariff: Mapping[str, int]) -> float:
    """The US dollars per request that `strategy` costs at the prices of `tariff`."""
    usd = strategy.usd
    for model, asks in strategy.asks.items():
        change = tariff.get(model)
        if change is not None:
            usd += (asks.usd or asks.calls) * math.exp(change * STEP) - asks.usd
    return max(usd, 0.0)
