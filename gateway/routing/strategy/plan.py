"""A fitted plan: its strategies, and the choice among them. Serving and replay use the same code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gateway.routing.strategy.hull import between, corners
from gateway.routing.strategy.models import ModelAdequacies
from gateway.routing.strategy.prompt_features import PromptFeatures
from gateway.routing.strategy.strategy import RunState, Strategy, share_of
from gateway.routing.strategy.tariff import Tariff, repriced_usd

_MOST_FRONTIERS = 1024
"""Maximum number of frontiers in the cache."""


class Start(NamedTuple):
    """The strategy that was chosen for a request, with its expected cost and quality."""

    asking: RunState
    strategy: Strategy
    adequacy: dict[str, float]
    """Model → probability that its answer is good. If the plan has no classifier, the probability is the same for all
    prompts."""
    expected: float
    """Mean quality that is expected for the requested quality. It may be lower if no strategy reaches the requested
    quality."""
    wanted: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of `thriftgate router fit` for a pool of models."""

    models: tuple[str, ...]
    strategies: tuple[Strategy, ...]
    """The frontier, cheapest first."""
    singles: tuple[Strategy, ...]
    """A strategy for each model alone."""
    reserves: tuple[Strategy, ...] = ()
    """Further strategies that are used if some models cannot be called."""
    adequacies: ModelAdequacies | None = None
    features: PromptFeatures | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Model → US dollars per 1M (input, output) tokens at which the costs were computed."""
    _frontiers: dict[tuple[frozenset[str], Tariff], tuple[Strategy, ...]] = field(default_factory=dict, compare=False)

    def quality_of(self, model: str) -> float:
        """The expected mean quality of one model alone. Raises KeyError for an unknown model."""
        return self._levels()[model]

    def begin(
        self, prompt: str, quality: float, subject: str, able: Mapping[str, str], tariff: Tariff = ()
    ) -> Start | None:
        """Choose the cheapest strategy, or a random mix of two, with an expected mean quality of `quality`. If no
        strategy reaches it, choose the best one. None if every strategy needs a model that cannot be called.

        `able`: models that can be called → their backends. `subject`: the conversation or request; the same subject
        always gets the same choice. `tariff`: present prices.
        """
        frontier = self._frontier(frozenset(able), tariff)
        if not frontier:
            return None
        low, high, share = between([each.quality for each in frontier], quality)
        strategy = frontier[high if share_of(subject) < share else low]
        adequacy = self.adequacies.of(prompt) if self.adequacies is not None else self._levels()
        if self.features is None:
            features: tuple[float, ...] = (1.0,)
        else:
            features = self.features.of([adequacy[model] for model in self.models], len(prompt))
        known = {model: backend for model, backend in able.items() if model in self.models}
        expected = share * frontier[high].quality + (1 - share) * frontier[low].quality
        return Start(RunState(strategy, features, known), strategy, adequacy, expected, quality)

    def _levels(self) -> dict[str, float]:
        return {model: single.quality for single in self.singles for model in single.first}

    def _frontier(self, able: frozenset[str], tariff: Tariff) -> tuple[Strategy, ...]:
        """The best strategies by quality and cost among those whose models can all be called. If models are missing or
        prices have changed, reserves and single models are considered, too."""
        known = self._frontiers.get((able, tariff))
        if known is None:
            known = self._at(able, tariff)
            if len(self._frontiers) >= _MOST_FRONTIERS:
                self._frontiers.clear()
            self._frontiers[able, tariff] = known
        return known

    def _at(self, able: frozenset[str], tariff: Tariff) -> tuple[Strategy, ...]:
        if not tariff:
            others = () if able >= set(self.models) else (*self.singles, *self.reserves)
            return _frontier((*self.strategies, *others), able)
        frontier = self._frontier(able, ())
        others = tuple(each for each in (*self.strategies, *self.singles, *self.reserves) if each.models <= able)
        if not all(each.asks for each in (*frontier, *others)):  # an older version wrote no costs per model
            return frontier
        return _repriced(frontier, others, tariff) if frontier else frontier


def _frontier(strategies: Sequence[Strategy], able: frozenset[str]) -> tuple[Strategy, ...]:
    possible = [each for each in strategies if each.models <= able]
    kept = corners([each.usd for each in possible], [each.quality for each in possible])
    return tuple(possible[place] for place in kept)


def _repriced(frontier: Sequence[Strategy], others: Sequence[Strategy], tariff: Tariff) -> tuple[Strategy, ...]:
    """The best strategies by quality and cost at the prices of `tariff`. `frontier`: the best strategies at the fitted
    prices. `others`: strategies whose quality is known less exactly; it counts at most as much as the frontier's
    quality at equal cost."""
    usd, quality = [each.usd for each in frontier], [each.quality for each in frontier]
    ceiling = np.interp([each.usd for each in others], usd, quality).tolist()
    every = [*frontier, *others]
    level = [*quality, *(min(each.quality, most) for each, most in zip(others, ceiling, strict=True))]
    changes = dict(tariff)
    cost = [repriced_usd(each, changes) for each in every]
    return tuple(replace(every[place], quality=level[place], usd=cost[place]) for place in corners(cost, level))
