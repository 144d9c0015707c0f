"""Selects the strategies of the frontier, and corrects their expected quality.

A strategy is kept only if it is better, with some confidence, than simpler strategies of the same cost and than mixes
of two simpler strategies. The frontier is the hull of the kept strategies.

The corners of the frontier were selected because of their measured quality, so this quality is too high on average
(optimism, Efron 1983). To estimate the optimism, a second frontier is selected on a part of the prompts. The optimism
is the quality of the second frontier on these prompts minus its quality on the other prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.routing.strategy.hull import between, corners
from gateway.routing.strategy.strategy import Strategy

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

CONFIDENCE = 1.0
"""Number of standard errors by which a cascade must beat simpler strategies. A single model must beat cheaper
strategies by this number, too."""
DIVISIONS = 6
"""Number of random divisions of the prompts. The optimism is averaged over the divisions."""
PARTS = 5


class Point(NamedTuple):
    """A strategy with its quality and its cost on n prompts that were not used to fit it."""

    strategy: Strategy
    quality: Array
    usd: Array

    def on(self, rows: Mask) -> Point:
        """The point measured only on the prompts selected by the mask `rows`."""
        quality, usd = self.quality[rows], self.usd[rows]
        return Point(replace(self.strategy, quality=float(quality.mean()), usd=float(usd.mean())), quality, usd)


class Family(NamedTuple):
    """Points that were measured in the same way. `confidence`: minimum distance from simpler strategies, in standard
    errors. Only a point that is better by this distance is kept."""

    points: tuple[Point, ...]
    confidence: float

    def on(self, rows: Mask) -> Family:
        return Family(tuple(each.on(rows) for each in self.points), self.confidence)


def with_doubts(strategy: Strategy, quality: Array, singles: Sequence[Point]) -> Strategy:
    """Return `strategy` with its `doubts`: for each single model, the standard error of the difference in quality
    between the strategy and the model. `quality`: the strategy's quality on n prompts that were not used to fit it,
    shape (n,)."""
    doubts = {}
    for single in singles:
        (model,) = single.strategy.first
        doubts[model] = float((quality - single.quality).std() / np.sqrt(len(quality)))
    return replace(strategy, doubts=doubts)


def select(singles: Sequence[Point], families: Sequence[Family]) -> tuple[Point, ...]:
    """Select the best strategies by quality and cost. Returns them cheapest first. `families`: simpler strategies
    first. A single model must be better than every cheaper strategy by `CONFIDENCE` standard errors."""
    everybody = _everybody(singles, families)
    return tuple(everybody[place] for place in _places(singles, families))


def promised(singles: Sequence[Point], families: Sequence[Family], *, seed: int = 0) -> tuple[Point, ...]:
    """Select the best strategies by quality and cost, and correct their qualities. The measured qualities of selected
    strategies are too high on average. `families`: simpler strategies first."""
    frontier = select(singles, families)
    if len(frontier) == 1:
        return frontier
    optimism = _optimism(singles, families, [each.strategy.quality for each in frontier], seed)
    lower = [_lowered(each, less) for each, less in zip(frontier, optimism.clip(0).tolist(), strict=True)]
    best = corners([each.strategy.usd for each in lower], [each.strategy.quality for each in lower])
    return tuple(lower[each] for each in best)


def _optimism(singles: Sequence[Point], families: Sequence[Family], wanted: Sequence[float], seed: int) -> Array:
    """The optimism for each quality in `wanted`: the amount by which the measured quality of selected strategies
    exceeds their quality on other prompts."""
    everybody = _everybody(singles, families)
    count = len(everybody[0].quality)
    missed = np.zeros(len(wanted))
    for division in range(DIVISIONS):
        parts = np.random.default_rng([seed, division]).permutation(count) % PARTS
        for part in range(PARTS):
            inside, outside = parts != part, parts == part
            places = _places([each.on(inside) for each in singles], [each.on(inside) for each in families])
            level = [float(everybody[place].quality[inside].mean()) for place in places]
            gap = np.array(level) - [everybody[place].quality[outside].mean() for place in places]
            for number, quality in enumerate(wanted):
                low, high, share = between(level, quality)
                missed[number] += ((1 - share) * gap[low] + share * gap[high]) * outside.mean() / DIVISIONS
    return missed


def _everybody(singles: Sequence[Point], families: Sequence[Family]) -> list[Point]:
    return [*singles, *(each for family in families for each in family.points)]


def _places(singles: Sequence[Point], families: Sequence[Family]) -> list[int]:
    """The indexes of the frontier's points in the list of all points: first `singles`, then the points of each
    family."""
    everybody = _everybody(singles, families)
    learnt: list[int] = []
    place = len(singles)
    for family in families:
        simpler = [*singles, *(everybody[each] for each in learnt)]
        learnt += [
            number for number, each in enumerate(family.points, place) if _beats(each, simpler, family.confidence)
        ]
        place += len(family.points)
    left = [
        number
        for number, each in enumerate(singles)
        if not any(
            _equals(each, everybody[other]) for other in learnt if everybody[other].strategy.usd < each.strategy.usd
        )
    ]
    left += learnt
    usd, quality = zip(
        *((everybody[each].strategy.usd, everybody[each].strategy.quality) for each in left), strict=True
    )
    return [left[each] for each in corners(usd, quality)]


def _lowered(point: Point, optimism: float) -> Point:
    strategy = replace(point.strategy, quality=point.strategy.quality - optimism)
    return point._replace(strategy=strategy, quality=point.quality - optimism)


def _equals(dear: Point, cheap: Point) -> bool:
    gain = dear.quality - cheap.quality
    return bool(gain.mean() <= CONFIDENCE * gain.std() / np.sqrt(len(gain)))


def _beats(point: Point, rivals: Sequence[Point], confidence: float) -> bool:
    """Return whether the point is better than each of `rivals`, and than their mixes of equal cost, by at least
    `confidence` standard errors."""
    quality, usd = point.quality, point.usd
    cost = np.array([each.strategy.usd for each in rivals])
    level = np.array([each.strategy.quality for each in rivals])
    hull = corners(cost, level)
    mean = float(usd.mean())
    if mean <= cost[hull[0]]:
        return bool(quality.mean() >= level[hull[0]])
    upper = next((place for place, one in enumerate(hull) if cost[one] >= mean), None)
    if upper is None:
        rival, rival_usd, slope = rivals[hull[-1]].quality, rivals[hull[-1]].usd, 0.0
    else:
        low, high = hull[upper - 1], hull[upper]
        share = (mean - cost[low]) / (cost[high] - cost[low])
        rival = share * rivals[high].quality + (1 - share) * rivals[low].quality
        rival_usd = share * rivals[high].usd + (1 - share) * rivals[low].usd
        slope = (level[high] - level[low]) / (cost[high] - cost[low])
    gain = (quality - rival) - slope * (usd - rival_usd)
    return bool(gain.mean() > confidence * gain.std() / np.sqrt(len(gain)))
