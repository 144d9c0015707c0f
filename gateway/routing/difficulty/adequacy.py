"""Estimates whether a cheaper backend is as good as the reference, and up to which difficulty it may be used."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Literal

from gateway.domain.backend import RANK, Backend
from gateway.domain.routing.learned import NOTHING, Learned

if TYPE_CHECKING:  # it imports NumPy, which is needed only with a classifier
    from gateway.routing.difficulty.weights_file import Curves

Gap = Literal["equal", "near", "below"]

SAME_PRICE = 1.25
"""Costs of two hosted models that differ by less than this factor count as equal."""
FAR_CHEAPER = 20.0
"""A hosted model that is cheaper than the reference by more than this factor counts as much weaker than the reference.
"""

_ROW: dict[Gap, int] = {"below": 0, "near": 1}


def gap(backend: Backend, reference: Backend, cost_pico: int | None, reference_pico: int | None) -> Gap:
    """Estimate how much weaker `backend` is than `reference`, from their tiers. If the tiers are equal and `backend` is
    hosted, the costs decide."""
    if backend.name == reference.name or backend.same_model(reference):
        return "equal"
    below = RANK[reference.tier] - RANK[backend.tier]
    if below > 0:
        return "below" if backend.tier == "small" else "near"
    if below < 0 or not backend.hosted or not cost_pico or not reference_pico:
        return "equal"
    cheaper = reference_pico / cost_pico
    if cheaper < SAME_PRICE:
        return "equal"
    return "near" if cheaper <= FAR_CHEAPER else "below"


class Adequacy:
    """Converts difficulties to probabilities and limits, with the classifier's calibration."""

    def __init__(self, curves: Curves) -> None:
        self._coefficients = curves.coefficients.tolist()
        self._losses = curves.losses.tolist()
        self._cutoffs = curves.cutoffs.tolist()

    def of(self, gap: Gap, difficulty: float) -> float:
        """The probability that a backend's answer is as good as the reference's. `gap`: how much weaker the backend is;
        if it is not weaker, the probability is 1. `difficulty`: the request's difficulty, 0..1."""
        if gap == "equal":
            return 1.0
        intercept, slope = self._coefficients[_ROW[gap]]
        return float(1 / (1 + math.exp(-(intercept + slope * _standard(difficulty)))))

    def enough(self, gap: Gap, difficulty: float, loss: float, learned: Learned = NOTHING) -> bool:
        """Return whether a backend may serve a request of this `difficulty`. `gap`: how much weaker the backend is than
        the reference. `loss`: the allowed share of worse answers. `learned`: evidence from the team's answers."""
        loss *= 1 - learned.margin
        if gap == "equal":
            return not learned.n or learned.adequacy(1.0) >= 1 - loss
        place = bisect_right(self._losses, loss + 1e-9) - 1
        if place < 0:
            return False
        _, slope = self._coefficients[_ROW[gap]]
        harder = learned.shift / slope if slope else 0.0
        return _standard(difficulty) + harder <= float(self._cutoffs[_ROW[gap]][place])


def _standard(difficulty: float) -> float:
    """The classifier's score for `difficulty`, in standard deviations from the mean score of the training prompts."""
    kept = min(max(difficulty, 1e-13), 1 - 1e-13)
    return math.log(kept / (1 - kept))
