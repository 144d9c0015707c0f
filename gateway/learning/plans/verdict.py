"""Decides, with confidence, whether one plan is better than another plan on the same judged requests.

Differences are computed per request, so requests that are hard for both plans have no effect. The bounds of a
difference are one-sided at 99 %, by the normal approximation. They need at least LEAST requests. The level is this
high because the comparison is repeated as judged requests arrive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev
from typing import Literal

from gateway.domain.routing.standing import TOLERANCE, wilson

LEAST, MOST = 100, 3000
"""`LEAST`: minimum number of judged requests for a verdict. `MOST`: number of judged requests after which a plan is
refused if it is not better."""
_Z = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a plan for one judged request."""

    quality: float
    """How good the answer is compared with the reference's, 0..1."""
    cost_pico: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a plan on trial with the live plan. Each difference is the value of the plan on trial minus the
    value of the live plan."""

    pairs: int = 0
    quality: tuple[float, float] = (0.0, 0.0)
    """Lower and upper bound of the difference in quality."""
    cost_pico: tuple[float, float] = (0.0, 0.0)
    """Lower and upper bound of the difference in cost, in pico-dollars per request."""
    live_quality: tuple[float, float] = (0.0, 1.0)
    """Lower and upper bound of the quality of the live plan itself."""


def compare(pairs: Sequence[tuple[Outcome, Outcome]]) -> Comparison:
    """Compare two plans. `pairs`: (outcome of the plan on trial, outcome of the live plan) for each request."""
    if not pairs:
        return Comparison()
    return Comparison(
        len(pairs),
        _bounds([tried.quality - live.quality for tried, live in pairs]),
        _bounds([tried.cost_pico - live.cost_pico for tried, live in pairs]),
        wilson(fmean(live.quality for _, live in pairs), len(pairs), _Z),
    )


def _bounds(differences: Sequence[float]) -> tuple[float, float]:
    middle = fmean(differences)
    half = _Z * pstdev(differences) / math.sqrt(len(differences))
    return middle - half, middle + half


def on_trial(found: Comparison) -> Literal["", "better", "refused"]:
    """The verdict on a plan on trial. `better`: the plan is cheaper and not worse, or better and not more
    expensive. `refused`: the plan is worse, or it is more expensive and not better, or there is no decision
    after MOST requests. Empty: there is no decision yet.
    """
    if found.pairs < LEAST:
        return ""
    (worst, best), (least, most) = found.quality, found.cost_pico
    if (worst > -TOLERANCE and most < 0) or (worst > 0 and least + most <= 0):
        return "better"
    if best < -TOLERANCE or (least > 0 and worst <= 0 and best < TOLERANCE) or found.pairs >= MOST:
        return "refused"
    return ""


def to_roll_back(before: Comparison, target: float) -> bool:
    """Return whether the previous plan must replace the live plan. It must if the measurements show, with confidence,
    that the live plan is worse than the previous one, or that its quality is below `target`. `before`: the comparison
    of the two plans; differences are previous plan minus live plan."""
    if before.pairs < LEAST:
        return False
    return before.quality[0] > TOLERANCE or before.live_quality[1] < target - TOLERANCE
