"""How much a budget that is ahead of plan lowers the quality that routing asks for.

The pressure is the price of budget, lambda, of online allocation by dual averaging: each moment adds what was spent
less what was planned to the dual variable, which is kept at 0 or above, so that

    lambda = max(0, spent - planned) / limit / tolerance    (kept at 1 or below)

(Balseiro and Gur 2019, "Learning in repeated auctions with budgets", whose adaptive pacing takes the same step; the
lazy form that needs no history is Xiao 2010, "Dual averaging methods for regularized stochastic learning"). Planned is
an even spend over the window. Where they weigh value against lambda times cost, routing takes the cheapest backend
that is good enough: so lambda lowers what is good enough, from the wanted quality towards a floor.
"""

from __future__ import annotations

import math


def pressure(spent: float, limit: float, window: tuple[float, float], now: float, tolerance: float) -> float:
    """0 if spend is within plan, rising to 1 when it is `tolerance` of the limit ahead; 0 if `now` is outside `window`
    or the window has no end.

    `spent` and `limit` in any unit, times in Unix seconds.
    """
    start, end = window
    if not start <= now < end or math.isinf(end) or limit <= 0:
        return 0.0
    planned = limit * (now - start) / (end - start)
    return min(max(0.0, (spent - planned) / limit / tolerance), 1.0)


def lowered(quality: float, pressure: float, floor: float) -> float:
    """`quality` without pressure, `floor` at full pressure; never below the floor, never above `quality`."""
    return quality - pressure * max(0.0, quality - floor)
