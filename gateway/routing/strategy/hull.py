"""The hull: the best quality that one backend, or a random mix of two backends, reaches at a given cost. Strategies are
compared with the hull."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def corners(usd: Sequence[float] | Array, quality: Sequence[float] | Array) -> list[int]:
    """Indexes of the corners of the upper hull of the points (`usd`, `quality`), cheapest first (Andrew's monotone
    chain, 1979). The first corner is the cheapest point, and the last corner is the best one. No point, and no mix of
    two points, has a higher quality than the hull at the same cost."""
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
    """For a mix that has the quality `target`: the indexes of its two parts in `qualities` (ascending), and the weight
    of the part with the higher quality. The two parts are neighbours."""
    if target <= qualities[0]:
        return 0, 0, 0.0
    for upper in range(1, len(qualities)):
        if target <= qualities[upper]:
            low = qualities[upper - 1]
            return upper - 1, upper, (target - low) / (qualities[upper] - low)
    return len(qualities) - 1, len(qualities) - 1, 0.0


def cost_of(target: float | Array, usd: Array, quality: Array) -> Array:
    """US dollars for the quality `target`, reached by a corner or by a mix of two corners. Outside the range of the
    corners, the cost of the nearest corner."""
    return np.asarray(np.interp(target, quality, usd), dtype=np.float64)


def savings(quality: Array, usd: Array, single_quality: Array, single_usd: Array, weights: Array) -> Array:
    """For each bootstrap sample, the savings compared with the hull: the saved share of the hull's cost at the same
    quality. The hull is computed again for each sample. `quality`, `usd`: results of n prompts. `single_quality`,
    `single_usd`: results of single models, n prompts × m models. `weights`: samples × n; each row adds up to 1."""
    level, cost = weights @ single_quality, weights @ single_usd
    found = []
    for number, (reached, spent) in enumerate(zip(weights @ quality, weights @ usd, strict=True)):
        kept = corners(cost[number], level[number])
        found.append(1 - spent / float(cost_of(float(reached), cost[number][kept], level[number][kept])))
    return np.array(found)
