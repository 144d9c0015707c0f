"""Compares a frontier (the best strategies at each cost) with three alternatives: single models or mixes of two of
them, a random choice, and an oracle that knows all outcomes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.routing.fit.frontier import Frontier
from gateway.routing.fit.outcomes import Outcomes
from gateway.routing.fit.search import prices
from gateway.routing.fit.selection import Point
from gateway.routing.strategy.hull import between, corners, cost_of, savings

Array = NDArray[np.float64]

TARGETS = 9
ROUNDS = 400
"""Number of bootstrap samples of prompts."""


@dataclass(frozen=True, slots=True)
class Target:
    """The costs with which a target mean quality is reached, in US dollars per request."""

    quality: float
    usd: float
    hull_usd: float
    """Lowest cost at which single models reach the quality: the cost of one model, or of a random mix of two models. If
    no single model reaches the quality, this is the cost of the best model."""
    oracle_usd: float | None
    """Cost at which an oracle reaches the quality; None if even the oracle does not reach it. An oracle knows all
    outcomes in advance."""
    saving: float
    """Saved share of the hull's cost. A negative share means that the frontier is more expensive."""
    low: float
    high: float
    """Upper end of the 95 % bootstrap interval of the saving, over the prompts. `low` is the lower end."""
    strategy: str


@dataclass(frozen=True, slots=True)
class Report:
    """The report that `thriftgate router fit` prints."""

    targets: tuple[Target, ...]
    frontier: tuple[tuple[float, float, str, str], ...]
    """(Quality, US dollars, kind, description) of each strategy, cheapest first. The figures were measured on prompts
    that were not used for the fit."""
    hull: tuple[tuple[float, float, str], ...]
    oracle: tuple[tuple[float, float], ...]
    random: tuple[float, float]
    """Mean quality and US dollars if a random model is called for each prompt."""

    def values(self) -> dict[str, Any]:
        """The report as JSON values."""
        names = ("quality", "usd", "kind", "description")
        return {
            "targets": [{name: getattr(each, name) for name in each.__dataclass_fields__} for each in self.targets],
            "frontier": [dict(zip(names, each, strict=True)) for each in self.frontier],
            "hull": [{"quality": quality, "usd": usd, "model": model} for quality, usd, model in self.hull],
            "oracle": [{"quality": quality, "usd": usd} for quality, usd in self.oracle],
            "random": {"quality": self.random[0], "usd": self.random[1]},
        }


def report(frontier: Frontier, outcomes: Outcomes, *, seed: int = 0) -> Report:
    """Make the report about `frontier`. `outcomes`: the outcomes from which the frontier was built."""
    points, singles = frontier.points, frontier.singles
    hull = [singles[place] for place in _corners(singles)]
    oracle = _oracle(outcomes)
    chance = np.random.default_rng(seed)
    weights = chance.multinomial(len(outcomes), np.full(len(outcomes), 1 / len(outcomes)), ROUNDS) / len(outcomes)
    levels = np.unique(
        np.concatenate(
            [
                np.linspace(hull[0].strategy.quality, hull[-1].strategy.quality, TARGETS),
                [points[-1].strategy.quality],
            ]
        )
    )
    known = ~np.isnan(outcomes.quality)
    random = np.where(known, outcomes.quality, 0).sum() / known.sum(), outcomes.usd[known].mean()
    return Report(
        tuple(_target(float(level), points, hull, singles, oracle, weights) for level in levels),
        tuple((one.quality, one.usd, one.kind, one.description) for one in frontier.strategies),
        tuple((one.strategy.quality, one.strategy.usd, one.strategy.description) for one in hull),
        tuple(oracle),
        (float(random[0]), float(random[1])),
    )


def _corners(points: tuple[Point, ...]) -> list[int]:
    return corners([one.strategy.usd for one in points], [one.strategy.quality for one in points])


def _target(
    level: float,
    points: tuple[Point, ...],
    hull: list[Point],
    singles: tuple[Point, ...],
    oracle: list[tuple[float, float]],
    weights: Array,
) -> Target:
    low, high, share = between([one.strategy.quality for one in points], level)
    quality = share * points[high].quality + (1 - share) * points[low].quality
    usd = share * points[high].usd + (1 - share) * points[low].usd
    cost = float(usd.mean())
    rival = float(
        cost_of(
            level,
            np.array([one.strategy.usd for one in hull]),
            np.array([one.strategy.quality for one in hull]),
        )
    )
    single_quality = np.column_stack([one.quality for one in singles])
    single_usd = np.column_stack([one.usd for one in singles])
    bounds = np.percentile(savings(quality, usd, single_quality, single_usd, weights), [2.5, 97.5])
    reaching = [one for one in oracle if one[0] >= level]
    names = [points[low].strategy.description, points[high].strategy.description]
    return Target(
        level,
        cost,
        rival,
        float(cost_of(level, np.array([usd for _, usd in oracle]), np.array([one for one, _ in oracle])))
        if reaching
        else None,
        1 - cost / rival,
        float(bounds[0]),
        float(bounds[1]),
        names[0] if share == 0 else names[1] if share == 1 else f"{1 - share:.0%} {names[0]}, {share:.0%} {names[1]}",
    )


def _oracle(outcomes: Outcomes) -> list[tuple[float, float]]:
    """The points (quality, US dollars) of an oracle that knows all outcomes, for many prices of money. A price of money
    is the quality that one US dollar must gain."""
    known = ~np.isnan(outcomes.quality)
    quality = np.where(known, outcomes.quality, -np.inf)
    rows = np.arange(len(outcomes))
    found = []
    for price in prices(outcomes.usd, known, 40):
        chosen = np.where(known, quality - price * outcomes.usd, -np.inf).argmax(1)
        found.append((float(quality[rows, chosen].mean()), float(outcomes.usd[rows, chosen].mean())))
    kept = corners([usd for _, usd in found], [level for level, _ in found])
    return [found[place] for place in kept]


def plot(shown: Report, path: str) -> None:
    """Draw the report as a PNG or SVG file, according to the suffix of `path`. Raises ImportError without matplotlib,
    ValueError for another suffix."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    lines = {
        "strategies": [(quality, usd) for quality, usd, _, _ in shown.frontier],
        "single models": [(quality, usd) for quality, usd, _ in shown.hull],
        "oracle": list(shown.oracle),
    }
    for name, points in lines.items():
        steps = [(quality, usd) for quality, usd in _drawn(points)]
        axes.plot([usd * 1000 for _, usd in steps], [quality for quality, _ in steps], label=name)
        axes.scatter([usd * 1000 for _, usd in points], [quality for quality, _ in points], s=14)
    axes.scatter([shown.random[1] * 1000], [shown.random[0]], marker="x", color="black", label="random")
    axes.set_xscale("log")
    axes.set_xlabel("USD per 1,000 requests")
    axes.set_ylabel("mean quality")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _drawn(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points, with intermediate points between neighbours. They are needed because a mix of two points is a curve
    on a logarithmic cost scale."""
    steps: list[tuple[float, float]] = []
    for (quality, usd), (more, dearer) in itertools.pairwise(points):
        shares = np.linspace(0, 1, 20).tolist()
        steps += [(quality + share * (more - quality), usd + share * (dearer - usd)) for share in shares]
    return steps or points
