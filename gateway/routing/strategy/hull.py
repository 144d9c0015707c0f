"""The quality that one backend, or a mix of two, reaches at a price: the baseline of strategies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def corners(usd: Sequence[float] | Array, quality: Sequence[float] | Array) -> list[int]:
    """Indexes of the points that no mixture of two others beats, cheapest first (Andrew's monotone chain, 1979).

    The first is the cheapest point, the last the best one; in between every point pays for itself.
    """
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
    """Places of the two neighbours in ascending `qualities` and the share of the upper one that reaches `target`."""
    if target <= qualities[0]:
        return 0, 0, 0.0
    for upper in range(1, len(qualities)):
        if target <= qualities[upper]:
            low = qualities[upper - 1]
            return upper - 1, upper, (target - low) / (qualities[upper] - low)
    return len(qualities) - 1, len(qualities) - 1, 0.0


def cost_of(target: float | Array, usd: Array, quality: Array) -> Array:
    """US dollars at which corners reach `target`; outside their range the nearest corner's."""
    return np.asarray(np.interp(target, quality, usd), dtype=np.float64)


def savings(quality: Array, usd: Array, single_quality: Array, single_usd: Array, weights: Array) -> Array:
    """Per bootstrap sample: share of the hull's cost that is saved at the quality reached, the hull drawn anew.

    `quality`, `usd`: n prompts; of single models n × m. `weights`: samples × n, each adding up to 1.
    """
    level, cost = weights @ single_quality, weights @ single_usd
    found = []
    for number, (reached, spent) in enumerate(zip(weights @ quality, weights @ usd, strict=True)):
        kept = corners(cost[number], level[number])
        found.append(1 - spent / float(cost_of(float(reached), cost[number][kept], level[number][kept])))
    return np.array(found)
