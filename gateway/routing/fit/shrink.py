"""Corrects the measured quality of the best order of models. The best order was chosen by this measurement, so its
measured quality is too high.

The orders of one set of models have nearly the same quality. The variance of their measured mean qualities has a real
part, and a part that comes from the random choice of prompts. The estimate for an order is a weighted mean of two
values: the measured mean of this order, and the mean of all orders of its set. The weight of the first value is the
share of the real part in the variance (empirical Bayes: James and Stein 1961, Efron and Morris 1973).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.float32]
Whole = NDArray[np.int64]


def real_share(quality: Rows, sets: Whole) -> float:
    """The share (0..1) of the variance between orders that is not due to chance; 1 if no set has two orders. `quality`:
    shape (k orders, n prompts). `sets`: shape (k,), equal for orders of the same set."""
    count = quality.shape[1]
    seen = chance = 0.0
    order = np.argsort(sets, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(sets[order])) + 1):
        if len(places) > 1:
            apart = quality[places] - quality[places].mean(0)
            seen += float((apart.mean(1, dtype=np.float64) ** 2).sum())
            chance += float(apart.var(1, dtype=np.float64).sum()) / count
    return max(0.0, 1 - chance / seen) if seen else 1.0


def shrunken(level: NDArray[np.floating], sets: Whole, share: float) -> Array:
    """Move each mean in `level` towards the mean of its set. `level` and result: shape (k orders, f). `share`: weight
    of an order's own mean, 0..1."""
    sizes = np.bincount(sets)
    common = np.stack([np.bincount(sets, column) / np.maximum(sizes, 1) for column in level.T], axis=1)
    return np.asarray(share * level + (1 - share) * common[sets], dtype=np.float64)
