"""Computes the hull: the best quality that one backend, or a random mix of two backends, reaches at a given cost.
Strategies are compared with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def corners(usd: Sequence[float] | Array, quality: Sequence[float] | Array) -> list[int]:
    """The indexes of the corners: the points (`usd`, `quality`) that no other point or mix beats at equal cost.
    Cheapest first; the last one is the best. Both arguments have shape (n,). Method: monotone chain, Andrew 1979."""
    cost, value = np.asarray(usd, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    kept: list[int] = []
    for point in np.lexsort((-value, cost)).tolist():
        if kept and value[point] <= value[kept[-1]]:
            continue
        while len(kept) > 1 and _below(kept[-2], kept[-1], point, cost, value):
            kept.pop()
        kept.append(point)
    return kept


def _below(first: int, middle: int, last: int, cost: Array, value: Array) -> bool:
    rise = (value[middle] - value[first]) * (cost[last] - cost[first])
    return bool(rise <= (value[last] - value[first]) * (cost[middle] - cost[first]))


def between(qualities: Sequence[float], target: float) -> tuple[int, int, float]:
    """Find the two neighbours in `qualities` (ascending) whose mix has the quality `target`. Returns (index, index,
    weight of the better one)."""
    if target <= qualities[0]:
        return 0, 0, 0.0
    for upper in range(1, len(qualities)):
        if target <= qualities[upper]:
            low = qualities[upper - 1]
            return upper - 1, upper, (target - low) / (qualities[upper] - low)
    return len(qualities) - 1, len(qualities) - 1, 0.0


def cost_of(target: float | Array, usd: Array, quality: Array) -> Array:
    """The US dollars for which a corner, or a mix of two corners, reaches the quality `target`. Outside of the range of
    qualities, the cost of the nearest corner. `usd`, `quality`: shape (corners,)."""
    return np.asarray(np.interp(target, quality, usd), dtype=np.float64)


def savings(quality: Array, usd: Array, single_quality: Array, single_usd: Array, weights: Array) -> Array:
    """The share of the single models' cost that is saved at equal quality, for each bootstrap sample, shape (samples,).
    `quality`, `usd`: shape (n,). `single_quality`, `single_usd`: shape (n, m models). `weights`: shape (samples, n);
    rows add up to 1."""
    level, cost = weights @ single_quality, weights @ single_usd
    found = []
    for number, (reached, spent) in enumerate(zip(weights @ quality, weights @ usd, strict=True)):
        kept = corners(cost[number], level[number])
        found.append(1 - spent / float(cost_of(float(reached), cost[number][kept], level[number][kept])))
    return np.array(found)
