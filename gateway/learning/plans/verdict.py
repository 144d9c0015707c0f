"""Decides with confidence whether one plan is better than another, on the same judged requests.

Differences are paired, so requests that are hard for both plans do not count. Bounds are one-sided at 99 %, by the
normal approximation, from LEAST pairs on. The level is this high because the comparison is repeated as pairs arrive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev
from typing import Literal

from gateway.domain.routing.standing import TOLERANCE, wilson

LEAST, MOST = 100, 3000
"""Minimum number of judged requests for a verdict, and the number after which a plan that is not better is dropped."""
_Z = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a plan for one judged request."""

    quality: float
    """How good the answer is compared with the reference's, 0..1."""
    cost_pico: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A plan on trial compared with the live plan. A difference is the trial plan's value minus the live plan's
    value."""

    pairs: int = 0
    quality: tuple[float, float] = (0.0, 0.0)
    """Lower and upper bound of the difference in quality."""
    cost_pico: tuple[float, float] = (0.0, 0.0)
    """Lower and upper bound of the cost difference, in pico-dollars per request."""
    live_quality: tuple[float, float] = (0.0, 1.0)
    """Lower and upper bound of the live plan's own quality."""


def compare(pairs: Sequence[tuple[Outcome, Outcome]]) -> Comparison:
    """Compare the outcomes in `pairs`: (plan on trial, live plan) for each request."""
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
    """`better`: cheaper and not worse, or better and not more expensive. `refused`: worse; more expensive and not
    better; or neither after MOST pairs. Empty: undecided."""
    if found.pairs < LEAST:
        return ""
    (worst, best), (least, most) = found.quality, found.cost_pico
    if (worst > -TOLERANCE and most < 0) or (worst > 0 and least + most <= 0):
        return "better"
    if best < -TOLERANCE or (least > 0 and worst <= 0 and best < TOLERANCE) or found.pairs >= MOST:
        return "refused"
    return ""


def to_roll_back(before: Comparison, target: float) -> bool:
    """Whether the live plan is worse than the previous one, or below `target`. `before`: the previous plan compared
    with the live one."""
    if before.pairs < LEAST:
        return False
    return before.quality[0] > TOLERANCE or before.live_quality[1] < target - TOLERANCE
