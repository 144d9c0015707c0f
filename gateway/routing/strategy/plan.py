"""A fitted plan: its strategies, and the choice among them. Serving and replay use the same code."""

from __future__ import annotations

import math
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
    _frontiers: dict[tuple[frozenset[str], Tariff, str], tuple[Strategy, ...]] = field(
        default_factory=dict, compare=False
    )

    def quality_of(self, model: str) -> float:
        """The expected mean quality of one model alone. Raises KeyError for an unknown model."""
        return self._levels()[model]

    def begin(
        self,
        prompt: str,
        quality: float,
        subject: str,
        able: Mapping[str, str],
        tariff: Tariff = (),
        reference: str = "",
    ) -> Start | None:
        """Choose the cheapest strategy, or a random mix of two strategies, whose mean quality is at least `quality`. If
        no strategy reaches this quality, choose the best one. None if every strategy needs a model that cannot be
        called.

        `able`: models that can be called → their backends. `subject`: the conversation or request; the same subject
        always gets the same choice. `tariff`: present prices. `reference`: the model with which quality is compared. If
        it is given, the quality of a strategy is reduced by a safety margin (`Strategy.least`). "": without a margin.
        """
        frontier = self._frontier(frozenset(able), tariff, reference)
        if not frontier:
            return None
        low, high, share = between([each.least(reference) for each in frontier], quality)
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

    def _frontier(self, able: frozenset[str], tariff: Tariff, reference: str) -> tuple[Strategy, ...]:
        """The best strategies by quality and cost among those whose models can all be called. If models are missing or
        prices have changed, reserves and single models are considered, too. With a reference, no strategy is expected
        to cost more than the reference alone."""
        known = self._frontiers.get((able, tariff, reference))
        if known is None:
            known = self._at(able, tariff, reference)
            if len(self._frontiers) >= _MOST_FRONTIERS:
                self._frontiers.clear()
            self._frontiers[able, tariff, reference] = known
        return known

    def _at(self, able: frozenset[str], tariff: Tariff, reference: str) -> tuple[Strategy, ...]:
        possible = [each for each in self.strategies if each.models <= able]
        others = [each for each in (*self.singles, *self.reserves) if each.models <= able]
        # the reference's own quality is not in doubt, so it may be better than what is nearly as good
        sure = [each for each in others if _calls_only(each, reference)]
        frontier = _best([*possible, *(sure if able >= set(self.models) else others)], reference)
        every = [*possible, *others]
        # an older version wrote no costs per model
        if tariff and frontier and all(each.asks for each in (*frontier, *every)):
            every = _repriced(frontier, every, tariff, reference)
        else:
            every = [*frontier, *sure]
        most = min((each.usd for each in every if _calls_only(each, reference)), default=math.inf)
        return tuple(_best([each for each in every if each.usd <= most], reference))


def _calls_only(strategy: Strategy, model: str) -> bool:
    return not strategy.several and strategy.first == {model}


def _best(strategies: Sequence[Strategy], reference: str) -> list[Strategy]:
    kept = corners([each.usd for each in strategies], [each.least(reference) for each in strategies])
    return [strategies[place] for place in kept]


def _repriced(
    frontier: Sequence[Strategy], others: Sequence[Strategy], tariff: Tariff, reference: str
) -> list[Strategy]:
    """All strategies at the prices of `tariff`. `frontier`: the best strategies at the fitted prices. `others`:
    strategies whose quality is known less exactly. The quality of the others is limited to the quality that the
    frontier has at equal cost."""
    usd, quality = [each.usd for each in frontier], [each.least(reference) for each in frontier]
    ceiling = np.interp([each.usd for each in others], usd, quality).tolist()
    lower = [max(0.0, each.least(reference) - most) for each, most in zip(others, ceiling, strict=True)]
    every = [*frontier, *(replace(each, quality=each.quality - less) for each, less in zip(others, lower, strict=True))]
    changes = dict(tariff)
    return [replace(each, usd=repriced_usd(each, changes)) for each in every]
