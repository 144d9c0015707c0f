"""A fitted pool of models: its strategies, and the one that a request gets. Serving and replay begin here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.routing.hull import between, corners
from gateway.routing.models import ModelAdequacies
from gateway.routing.prompt_features import PromptFeatures
from gateway.routing.strategy import Strategy, Underway, share_of

_MOST_POOLS = 256


class Start(NamedTuple):
    """A request's strategy, ready to ask."""

    asking: Underway
    strategy: Strategy
    adequacy: dict[str, float]
    """Model → probability that its answer is good; without a classifier the same for every prompt."""
    expected: float
    """Mean quality of the frontier at the wanted quality."""
    wanted: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What `thriftgate router fit` found out about a pool of models."""

    models: tuple[str, ...]
    strategies: tuple[Strategy, ...]
    """The frontier, cheapest first."""
    singles: tuple[Strategy, ...]
    """Each model alone."""
    reserves: tuple[Strategy, ...] = ()
    """Further ones, for when not every model can be asked."""
    adequacies: ModelAdequacies | None = None
    features: PromptFeatures | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _frontiers: dict[frozenset[str], tuple[Strategy, ...]] = field(default_factory=dict, compare=False)

    def quality_of(self, model: str) -> float:
        """Expected mean quality of one model alone. Raises KeyError."""
        return self._levels()[model]

    def begin(self, prompt: str, quality: float, subject: str, able: Mapping[str, str]) -> Start | None:
        """The cheapest strategy, or draw between two, whose expected mean quality is `quality`; the best there is where
        none reaches it. None when the plan knows nobody who can be asked.

        `able`: the models that can be asked now, and the backend that stands for each. `subject`: whoever draws with
        the same one draws the same strategy.
        """
        frontier = self._frontier(frozenset(able))
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
        return Start(Underway(strategy, features, known), strategy, adequacy, expected, quality)

    def _levels(self) -> dict[str, float]:
        return {model: single.quality for single in self.singles for model in single.first}

    def _frontier(self, able: frozenset[str]) -> tuple[Strategy, ...]:
        """Of the strategies that need nobody else; while somebody is missing, of the reserves and single models too."""
        known = self._frontiers.get(able)
        if known is None:
            others = () if able >= set(self.models) else (*self.singles, *self.reserves)
            known = _frontier((*self.strategies, *others), able)
            if len(self._frontiers) >= _MOST_POOLS:
                self._frontiers.clear()
            self._frontiers[able] = known
        return known


def _frontier(strategies: Sequence[Strategy], able: frozenset[str]) -> tuple[Strategy, ...]:
    possible = [each for each in strategies if each.models <= able]
    kept = corners([each.usd for each in possible], [each.quality for each in possible])
    return tuple(possible[place] for place in kept)
