"""Whether one plan is better than another, with confidence, on the same judged requests.

Differences are paired, so what is hard for both does not count. Bounds are one-sided at 99 %, by the normal
approximation, from LEAST pairs on; that they are looked at again as pairs come in is what the 1 % is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev
from typing import Literal

from gateway.domain.routing.standing import TOLERANCE, wilson

LEAST, MOST = 100, 3000
"""Judged requests before any verdict, and after which a plan that is not better is dropped."""
_Z = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plan would have made of one judged request."""

    quality: float
    """0..1: as good as the reference's answer?"""
    cost_pico: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of a plan on trial with the live one; differences are the first less the second."""

    pairs: int = 0
    quality: tuple[float, float] = (0.0, 0.0)
    """Lower and upper bound of the difference in quality."""
    cost_pico: tuple[float, float] = (0.0, 0.0)
    """Of the difference in pico-dollars a request."""
    live_quality: tuple[float, float] = (0.0, 1.0)
    """Of the live plan's own quality."""


def compare(pairs: Sequence[tuple[Outcome, Outcome]]) -> Comparison:
    """Pairs of (on trial, live)."""
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
    """Better: cheaper and not worse, or better and not dearer. Refused: worse, or dearer and not better, or neither
    after MOST pairs."""
    if found.pairs < LEAST:
        return ""
    (worst, best), (least, most) = found.quality, found.cost_pico
    if (worst > -TOLERANCE and most < 0) or (worst > 0 and least + most <= 0):
        return "better"
    if best < -TOLERANCE or (least > 0 and worst <= 0 and best < TOLERANCE) or found.pairs >= MOST:
        return "refused"
    return ""


def to_roll_back(before: Comparison, target: float) -> bool:
    """`before`: of the plan that was live before with the one that is. Is that one worse, or below `target`?"""
    if before.pairs < LEAST:
        return False
    return before.quality[0] > TOLERANCE or before.live_quality[1] < target - TOLERANCE
