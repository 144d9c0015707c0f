"""Builds the frontier: the fitted strategies with the best quality at each cost.

Quality and cost of a strategy are measured on prompts that were not used to fit it (outer cross-validation), because
the results would be too good on the prompts of the fit. `selection.py` selects the strategies to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gateway.routing.fit.cascades import Cascade, Tried, states, try_all
from gateway.routing.fit.search import Evidence, Learned, Settings, affordable, decode, learn, play, walk
from gateway.routing.fit.search import prices as price_grid
from gateway.routing.fit.selection import CONFIDENCE, Family, Point, promised, with_doubts
from gateway.routing.strategy.strategy import Pattern, State, Strategy, ordered

Array = NDArray[np.float64]
Progress = Callable[[str], None]

OUTER = 5
"""Number of folds of the outer cross-validation."""
REPEATS = 6
"""Number of random divisions of the prompts into folds. Results of plain cascades are averaged over the divisions."""
PRICES = 60
"""Number of prices of money. A price of money is the quality that one US dollar must gain. A plain cascade is chosen
for each price."""
STRICT = 2.0
"""Number of standard errors by which a searched strategy with several answers must beat simpler strategies. It is
higher than `selection.CONFIDENCE`, which applies to other strategies, because there are many more searched strategies,
and they must also beat plain cascades."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The selected strategies, cheapest first."""

    points: tuple[Point, ...]
    singles: tuple[Point, ...]
    """For each model, the strategy that calls only this model."""
    reserves: tuple[Strategy, ...] = ()
    """Plain cascades for the case that a model cannot be called or that its price has changed."""

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        return tuple(point.strategy for point in self.points)


def build(models: Sequence[str], evidence: Evidence, progress: Progress, *, seed: int = 0) -> Frontier:
    """Measure strategies, select among them, and fit the selected ones to all prompts. `progress(line)`: called with a
    line of text during the work."""
    singles, ranking = _singles(models, evidence)
    price = price_grid(evidence.usd, evidence.able)
    voted = bool((evidence.labels >= 0).any())
    depth = affordable(len(models), len(evidence), voted)
    base = Settings(depth=depth, seed=seed)
    families: list[Family] = []
    reserves: tuple[Strategy, ...] = ()
    if voted and len(models) > 1:
        progress("trying cascades until two or three agree")
        tried = try_all(evidence, price)
        finer = price_grid(evidence.usd, evidence.able, PRICES)
        families.append(Family(tuple(_cascades(models, tried, finer, ranking, seed)), CONFIDENCE))
        reserves = _reserves(models, tried, price, singles, seed)
    for features, settings in ((1, base), (evidence.features.shape[1], base._replace(realised=1.0))):
        if features > 1 or depth > 1:
            use = "without" if features == 1 else "with"
            progress(f"searching up to {depth} answers deep, {use} the prompt's features")
            found = _searched(models, evidence.only(features), price, settings, ranking)
            families.append(Family(tuple(found), CONFIDENCE if depth == 1 else STRICT))
    points, sure = (
        tuple(each._replace(strategy=with_doubts(each.strategy, each.quality, singles)) for each in group)
        for group in (promised(singles, families, seed=seed), singles)
    )
    return Frontier(points, sure, reserves)


def plain(models: Sequence[str], evidence: Evidence, *, seed: int = 0) -> Frontier:
    """Build the frontier from single models and plain cascades only. `evidence`: the measured outcomes."""
    singles, ranking = _singles(models, evidence)
    families: list[Family] = []
    if len(models) > 1:
        price = price_grid(evidence.usd, evidence.able)
        tried = try_all(evidence, price, orders=False)
        families.append(Family(tuple(_cascades(models, tried, price, ranking, seed)), CONFIDENCE))
    return Frontier(promised(singles, families, seed=seed), tuple(singles))


def _cascades(
    models: Sequence[str], tried: Tried, price: Array, ranking: tuple[str, ...], seed: int, repeats: int = REPEATS
) -> list[Point]:
    """The best plain cascade for each price of money in `price`, measured on prompts that were not used to choose it.
    `price`: the quality that one US dollar must gain, shape (L,). `tried`: results of all cascades. `repeats`: number
    of divisions into folds."""
    count = tried.quality.shape[1]
    rows = np.arange(count)
    quality, usd = np.zeros((len(price), count)), np.zeros((len(price), count))
    for repeat in range(repeats):
        folds = _outer(count, seed + repeat)
        outside = np.stack([folds != fold for fold in range(OUTER)], axis=1).astype(np.float64)
        outside /= outside.sum(0)
        level, cost = tried.level(outside), tried.usd @ outside
        for place, each in enumerate(price.tolist()):
            best = (level - each * cost).argmax(0)[folds]
            quality[place] += tried.quality[best, rows] / repeats
            usd[place] += tried.usd[best, rows] / repeats
    everything = np.full((count, 1), 1 / count)
    level, cost = tried.level(everything), tried.usd @ everything
    chosen: dict[Cascade, list[int]] = {}
    for place, each in enumerate(price.tolist()):
        chosen.setdefault(tried.cascades[int((level - each * cost).argmax())], []).append(place)
    found = []
    for cascade, places in chosen.items():
        reached, spent = quality[places].mean(0), usd[places].mean(0)
        found.append(Point(_strategy(states(cascade, models), reached, spent, ranking), reached, spent))
    return found


def _reserves(
    models: Sequence[str], tried: Tried, price: Array, singles: Sequence[Point], seed: int
) -> tuple[Strategy, ...]:
    """Reserve strategies for each model: the best plain cascades without this model, and the best plain cascades that
    always call it. They are used when the model is unavailable or when its price changes."""
    found: dict[Hashable, Strategy] = {}
    ranking = singles[0].strategy.ranking
    for model in range(len(models)):
        without = np.array([model not in each.members for each in tried.cascades])
        begun = np.array([model in each.members[: each.agree] for each in tried.cascades])
        for able in (without, begun):
            for point in _cascades(models, tried.part(able), price, ranking, seed, 1) if able.any() else ():
                states = tuple((key, *state.ask) for key, state in point.strategy.states.items())
                found.setdefault(states, with_doubts(point.strategy, point.quality, singles))
    return tuple(found.values())


def _searched(
    models: Sequence[str], evidence: Evidence, price: Array, settings: Settings, ranking: tuple[str, ...]
) -> list[Point]:
    reached, spent = _measured(evidence, price, settings)
    learned = learn(evidence, price, settings)
    found = []
    for place in range(len(price)):
        quality, usd = reached[:, place], spent[:, place]
        found.append(Point(_strategy(written(models, evidence, learned, place), quality, usd, ranking), quality, usd))
    return found


def _strategy(states: dict[Pattern, State], quality: Array, usd: Array, ranking: tuple[str, ...]) -> Strategy:
    return describe(Strategy("", "", float(quality.mean()), float(usd.mean()), states, ranking))


def _outer(count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed + 1).permutation(count) % OUTER


def _singles(models: Sequence[str], evidence: Evidence) -> tuple[list[Point], tuple[str, ...]]:
    """For each model, a point of the frontier: the strategy that calls only this model. Also returns all models, best
    first."""
    found = []
    for place, model in enumerate(models):
        able = evidence.able[:, place]
        quality, usd = evidence.quality[:, place], evidence.usd[:, place]
        level, cost = float(quality[able].mean()), float(usd[able].mean())
        strategy = Strategy("one backend", model, level, cost, only(model), ())
        found.append(Point(strategy, np.where(able, quality, level), np.where(able, usd, cost)))
    ranking = tuple(each.strategy.description for each in sorted(found, key=lambda each: -each.strategy.quality))
    return [each._replace(strategy=replace(each.strategy, ranking=ranking)) for each in found], ranking


def only(model: str) -> dict[Pattern, State]:
    """The states of a strategy that calls only one model."""
    return {((), ()): State(ask={model: (1.0,)})}


def _measured(evidence: Evidence, price: Array, settings: Settings) -> tuple[Array, Array]:
    """Measure the fitted strategies: quality and US dollars, each of shape (n prompts, L prices of money). A price of
    money is the quality that one US dollar must gain. A prompt's results come from a fit without this prompt."""
    folds = _outer(len(evidence), settings.seed)
    quality, usd = np.zeros((len(evidence), len(price))), np.zeros((len(evidence), len(price)))
    for fold in range(OUTER):
        inside, outside = folds == fold, folds != fold
        learned = learn(evidence.part(outside), price, settings)
        test = evidence.part(inside)
        for place in range(len(price)):
            quality[inside, place], usd[inside, place] = play(test, learned, place)
    return quality, usd


def written(models: Sequence[str], evidence: Evidence, learned: Learned, place: int) -> dict[Pattern, State]:
    """The states of the strategy for one price of money, without states that no prompt reaches. A price of money is the
    quality that one US dollar must gain; `place` is its index. `models`: the names of the models."""
    states: dict[Pattern, State] = {}
    for asked, level, state, onward in walk(evidence, learned, place):
        ask = {models[model]: _short(level.worth[model][state, :, place]) for model in onward}
        if (
            evidence.features.shape[1] == 1 and ask
        ):  # these models are called for prompts for which the best model cannot be called
            ask = {max(ask, key=lambda model: ask[model][0]): (1.0,)}
        names = [models[model] for model in asked]
        serve = names[int(level.serve[state])] if names else ""
        states[ordered(names, decode(int(level.codes[state]), len(asked)))] = State(serve, ask)
    return states


def _short(worth: Array) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in worth)


def describe(strategy: Strategy) -> Strategy:
    """Add to `strategy` its `kind`, and a description of the calls that it usually makes."""
    first = sorted(strategy.first)
    conditional = any(len(worth) > 1 for state in strategy.states.values() for worth in state.ask.values())
    if not strategy.several and len(first) == 1:
        return replace(strategy, kind="one backend", description=first[0])
    if not strategy.several:
        return replace(strategy, kind="prompt-conditional choice", description=f"by the prompt: {', '.join(first)}")
    kind = "prompt-conditional cascade" if conditional else "cascade"
    begin = first[0] if len(first) == 1 else f"one of {', '.join(first)} by the prompt"
    order = [next(iter(state.ask)) for state in strategy.states.values() if len(state.ask) == 1]
    rest = [model for model in dict.fromkeys(order) if model not in first]
    rest += sorted(strategy.models - {*first, *rest})
    tail = f"; then, unless enough answers agree, {', '.join(rest)}" if rest else "; then the others of these"
    return replace(strategy, kind=kind, description=begin + tail)
