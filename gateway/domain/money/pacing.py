"""Computes by how much routing lowers the required quality if a budget is spent faster than planned.

The plan is to spend the same amount in each second of the budget's window. The pressure, lambda, says how far the
actual spend is ahead of this plan:

    lambda = max(0, spent - planned) / limit / tolerance    (at most 1)

The method is dual averaging for online allocation. Lambda is the dual variable of the budget, that is, the price of
budget. It grows with the difference between actual and planned spend, and is never negative. Sources: Balseiro and
Gur 2019, "Learning in repeated auctions with budgets" (adaptive pacing); Xiao 2010, "Dual averaging methods for
regularized stochastic learning" (the form that stores no history).

In these papers, the value of an answer is compared with lambda times its cost. Here, routing takes the cheapest
backend that is good enough. So lambda lowers the required quality, down to a floor.
"""

from __future__ import annotations

import math


def pressure(spent: float, limit: float, window: tuple[float, float], now: float, tolerance: float) -> float:
    """Compute how far a budget's spend is ahead of an even spend, from 0 to 1. The result is 1 if the spend is ahead
    by `tolerance` · `limit` or more. It is 0 if `now` is outside of `window`, or if the window has no end. `spent`
    and `limit` have the same unit. `now` and `window` are in Unix seconds.
    """
    start, end = window
    if not start <= now < end or math.isinf(end) or limit <= 0:
        return 0.0
    planned = limit * (now - start) / (end - start)
    return min(max(0.0, (spent - planned) / limit / tolerance), 1.0)


def lowered(quality: float, pressure: float, floor: float) -> float:
    """Compute the quality that is required under pressure. It falls from `quality` (pressure 0) to `floor` (pressure
    1). If `quality` is below `floor`, it does not change."""
    return quality - pressure * max(0.0, quality - floor)
