"""A strategy decides which model to call first, which models to call next if answers do not agree, and which answer to
serve.

A strategy is a table of states. A state is the set of models that were called, and which of their answers agree. Each
state names the model whose answer is served if no further model is called. For each further model, the state has one
weight per prompt feature. The sum of weights times features is the value of calling this model: the expected gain in
quality minus the cost, converted to quality. The model with the largest sum above zero is called. If no sum is above
zero, the strategy ends.

A strategy with one state calls a single backend. A strategy with several possible first models chooses by the prompt. A
strategy with further states is a cascade.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

from gateway.domain.routing.strategy import FAILED, StrategyAnswer

CAUTION = 2.33
"""Number of standard errors by which the measured quality must exceed the wanted quality. The prompts of the fit and
the prompts that are served are both samples. So the difference between their qualities has √2 times the standard error.
With 1.645 · √2 standard errors, the quality is kept in 95 % of all sets of prompts that are as large as the set of the
fit."""

Features = tuple[float, ...]
"""The features of a prompt (see `PromptFeatures`). The first feature is 1."""


@dataclass(frozen=True, slots=True)
class State:
    """One state of a strategy: the model whose answer is served without further calls, and the value of each further
    call."""

    serve: str = ""
    """The model whose answer is served. Empty in the state without answers."""
    ask: Mapping[str, Features] = field(default_factory=dict)
    """Model → the value of calling it, as one weight per feature of the prompt."""

    def worth(self, model: str, features: Features) -> float:
        """The value of calling `model`: the expected gain in quality minus the weighted cost."""
        return sum(a * b for a, b in zip(self.ask[model], features, strict=False))


Pattern = tuple[tuple[str, ...], tuple[int, ...]]
"""(Called models in alphabetical order, a label for each model's answer). Answers with equal labels agree. Labels count
from 1; the label 0 means no vote."""


def pattern(answers: Sequence[StrategyAnswer]) -> Pattern:
    """The state that is reached after `answers`. A backend that failed counts as not called."""
    given = [each for each in answers if each.weak != FAILED]
    votes = [0 if each.vote is None or each.weak else each.vote for each in given]
    return ordered([each.backend for each in given], votes)


def ordered(names: Sequence[str], votes: Sequence[int | str]) -> Pattern:
    """The state that is reached after the models `names` have given the votes `votes`. 0 means no vote."""
    order = sorted(range(len(names)), key=lambda place: names[place])
    labels: dict[int | str, int] = {}
    return (
        tuple(names[place] for place in order),
        tuple(0 if votes[place] == 0 else labels.setdefault(votes[place], len(labels) + 1) for place in order),
    )


def voted(reached: Pattern) -> Pattern:
    """The state `reached`, after each answer without a vote got a vote that no other answer has."""
    names, labels = reached
    fresh: dict[int, int] = {}
    return names, tuple(
        fresh.setdefault(label if label else -1 - place, len(fresh) + 1) for place, label in enumerate(labels)
    )


class Step(NamedTuple):
    """The part of one model in a strategy: mean values per request."""

    calls: float
    usd: float
    """US dollars of the model's calls at the fitted prices. The values of all models add up to the strategy's cost."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A fitted strategy. Its expected values are per request, for traffic that is like the traffic of the fit."""

    kind: str
    """Kind of the strategy: one backend, a choice that depends on the prompt, a cascade, or a cascade that depends on
    the prompt."""
    description: str
    quality: float
    """Expected mean quality, 0..1."""
    usd: float
    """Expected US dollars per request for all calls together."""
    states: Mapping[Pattern, State]
    ranking: tuple[str, ...]
    """All models of the pool, best first. Used when a run reaches a state that is not in the table."""
    asks: Mapping[str, Step] = field(default_factory=dict)
    """Model → its expected calls per request. Empty if the calls were not measured."""
    doubts: Mapping[str, float] = field(default_factory=dict)
    """Model → standard error of the difference between the strategy's quality and this model's. Empty if the plan was
    written by an older version, or if no outcomes were measured."""

    @property
    def models(self) -> frozenset[str]:
        """All models that the strategy may call."""
        return frozenset(model for state in self.states.values() for model in state.ask)

    @property
    def first(self) -> frozenset[str]:
        """The models that the strategy may call first."""
        return frozenset(self.states[(), ()].ask)

    def least(self, reference: str) -> float:
        """The quality that the strategy reaches with high probability, in comparison with the model `reference`: the
        expected quality, less `CAUTION` standard errors of the difference between strategy and reference. An empty
        `reference` means that there is none; then it is the expected quality."""
        return self.quality - CAUTION * self.doubts.get(reference, 0.0)

    @property
    def several(self) -> bool:
        """Whether the strategy may call more than one model for a request."""
        return any(names and state.ask for (names, _), state in self.states.items())


class RunState:
    """Runs a strategy for one request. Implements `RunningStrategy` of gateway/domain/routing/strategy.py."""

    __slots__ = ("_able", "_backends", "_features", "_models", "strategy")

    def __init__(self, strategy: Strategy, features: Features, able: Mapping[str, str]) -> None:
        """`able`: models that can be called → the name of a backend with the model."""
        self.strategy = strategy
        self._features = features
        self._able = frozenset(able)
        self._backends = able
        self._models = {backend: model for model, backend in able.items()}

    def next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        return tuple(self._backends[model] for model in self._next(self._named(answers)))

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        return self._serves(self._named(answers))

    def _named(self, answers: Sequence[StrategyAnswer]) -> Sequence[StrategyAnswer]:
        """The answers, named by model instead of backend."""
        return [replace(each, backend=self._models.get(each.backend, each.backend)) for each in answers]

    def _next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        """The model to call next, as a tuple with at most one element: the model with the highest value above 0. If no
        answer so far may be shown to the client, the value may also be lower."""
        asked = {each.backend for each in answers}
        open_ = self._able - asked
        state = self._state(answers)
        fit = any(not each.weak for each in answers)
        if state is not None:
            worth = {model: state.worth(model, self._features) for model in state.ask if model in open_}
            best = max(worth, key=lambda model: worth[model], default=None)
            if best is not None and (worth[best] > 0 or not fit):
                return (best,)
        if fit:
            return ()
        return next(((model,) for model in self.strategy.ranking if model in open_), ())

    def _state(self, answers: Sequence[StrategyAnswer]) -> State | None:
        """The state that is reached after `answers`. If the table does not have it, answers without a vote get votes of
        their own."""
        reached = pattern(answers)
        return self.strategy.states.get(reached) or self.strategy.states.get(voted(reached))

    def _serves(self, answers: Sequence[StrategyAnswer]) -> int:
        """The index of the answer to serve. This is the answer of the model that the state names, if the client may see
        this answer. Otherwise it is the answer of the best model in the largest group of agreeing answers."""
        state = self._state(answers)
        for place, each in enumerate(answers):
            if state is not None and each.backend == state.serve and not each.weak:
                return place
        rank = {model: -place for place, model in enumerate(self.strategy.ranking)}

        def standing(place: int) -> tuple[bool, bool, int, int]:
            one = answers[place]
            agree = sum(one.vote is not None and each.vote == one.vote and not each.weak for each in answers)
            return not one.weak, one.weak != FAILED, agree, rank.get(one.backend, -len(rank))

        return max(range(len(answers)), key=standing)


def share_of(subject: str, purpose: bytes = b"") -> float:
    """A pseudo-random number in 0..1 that depends only on `subject` (a session or request) and `purpose`. The numbers
    for different purposes are independent."""
    return int.from_bytes(blake2b(subject.encode(), digest_size=7, person=purpose).digest()) / 2**56
