"""Computes how much routing lowers the required quality if a budget's spend is ahead of plan.

The pressure is the variable lambda, the price of the budget, in online allocation by dual averaging. At each moment,
what was spent minus what was planned is added to this dual variable, which is kept at 0 or above, so that

lambda = max(0, spent - planned) / limit / tolerance    (kept at 1 or below)

(Balseiro and Gur 2019, "Learning in repeated auctions with budgets", whose adaptive pacing takes the same step; the
lazy form that needs no history is Xiao 2010, "Dual averaging methods for regularized stochastic learning"). Planned is
an even spend over the window. In these papers, value is weighed against lambda times cost. Here, routing takes the
cheapest backend that is good enough, so lambda lowers what is good enough, from the required quality towards a floor.
"""

from __future__ import annotations

import math


def pressure(spent: float, limit: float, window: tuple[float, float], now: float, tolerance: float) -> float:
    """How far a budget's spend is ahead of an even spend, from 0 to 1. It is 1 if ahead by `tolerance` · `limit` or
    more. It is 0 if `now` is outside of `window`, or the window has no end. `spent`, `limit`: in the same unit; times:
    Unix seconds."""
    start, end = window
    if not start <= now < end or math.isinf(end) or limit <= 0:
        return 0.0
    planned = limit * (now - start) / (end - start)
    return min(max(0.0, (spent - planned) / limit / tolerance), 1.0)


def lowered(quality: float, pressure: float, floor: float) -> float:
    """The quality that is required under pressure. It falls from `quality` (pressure 0) to `floor` (pressure 1). A
    `quality` below `floor` does not change."""
    return quality - pressure * max(0.0, quality - floor)
