"""A strategy: which model to ask first, which after which agreement, which answer to serve; and its run.

A strategy is a table of states. A state is who has been asked and which of them agree; it names whose answer is given
if asking ends there, and what asking each other model would bring: a number per feature of the prompt, so that its
product with the prompt's features is the expected gain in quality less the price of the money it costs. The greatest
gain above zero is asked; where none is, it is settled. One backend is a strategy of one state; a prompt-conditional
choice has several first questions; a cascade has further states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

from gateway.domain.routing.strategy import FAILED, StrategyAnswer

Features = tuple[float, ...]
"""Of a prompt; the first is 1."""


@dataclass(frozen=True, slots=True)
class State:
    """The model whose answer is served if the run ends here, and the value of each further call."""

    serve: str = ""
    """A model that was asked; empty before the first answer."""
    ask: Mapping[str, Features] = field(default_factory=dict)
    """Model → worth per feature of the prompt."""

    def worth(self, model: str, features: Features) -> float:
        return sum(a * b for a, b in zip(self.ask[model], features, strict=False))


Pattern = tuple[tuple[str, ...], tuple[int, ...]]
"""The called models in alphabetical order, with a label each: equal labels agree, counted from 1; 0: no vote."""


def pattern(answers: Sequence[StrategyAnswer]) -> Pattern:
    """The state that `answers` lead to. A backend that failed counts as not asked."""
    given = [each for each in answers if each.weak != FAILED]
    votes = [0 if each.vote is None or each.weak else each.vote for each in given]
    return ordered([each.backend for each in given], votes)


def ordered(names: Sequence[str], votes: Sequence[int | str]) -> Pattern:
    """The state in which `names` have cast `votes`; 0: no vote that counts."""
    order = sorted(range(len(names)), key=lambda place: names[place])
    labels: dict[int | str, int] = {}
    return (
        tuple(names[place] for place in order),
        tuple(0 if votes[place] == 0 else labels.setdefault(votes[place], len(labels) + 1) for place in order),
    )


def voted(reached: Pattern) -> Pattern:
    """The same with a vote of its own for each answer that has none."""
    names, labels = reached
    fresh: dict[int, int] = {}
    return names, tuple(
        fresh.setdefault(label if label else -1 - place, len(fresh) + 1) for place, label in enumerate(labels)
    )


class Step(NamedTuple):
    """One model's part in a strategy, per request."""

    calls: float
    usd: float
    """US dollars at the prices that it was fitted with; a strategy's add up to its own."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """What is expected of it is per request, on traffic like that it was fitted on."""

    kind: str
    """one backend, prompt-conditional choice, cascade, or prompt-conditional cascade."""
    description: str
    quality: float
    """Expected mean quality, 0..1."""
    usd: float
    """Expected US dollars a request, every call counted."""
    states: Mapping[Pattern, State]
    ranking: tuple[str, ...]
    """Every model of the pool, the best alone first: for states that were never seen."""
    asks: Mapping[str, Step] = field(default_factory=dict)
    """Model → expected calls per request; empty if not measured."""

    @property
    def models(self) -> frozenset[str]:
        """Everybody it may ask."""
        return frozenset(model for state in self.states.values() for model in state.ask)

    @property
    def first(self) -> frozenset[str]:
        """The models that it may call first."""
        return frozenset(self.states[(), ()].ask)

    @property
    def several(self) -> bool:
        """May it ask more than one?"""
        return any(names and state.ask for (names, _), state in self.states.items())


class RunState:
    """One request's strategy; implements `RunningStrategy` of gateway/domain/routing/strategy.py."""

    __slots__ = ("_able", "_backends", "_features", "_models", "strategy")

    def __init__(self, strategy: Strategy, features: Features, able: Mapping[str, str]) -> None:
        """`able`: the models that can be asked, and the name of a backend for each."""
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
        """With models' names in place of backends'."""
        return [replace(each, backend=self._models.get(each.backend, each.backend)) for each in answers]

    def _next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        """The most valuable question left, if it is worth its price; the best model left while no answer is fit."""
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
        """If nothing was measured for answers without a vote, each counts as a vote of its own."""
        reached = pattern(answers)
        return self.strategy.states.get(reached) or self.strategy.states.get(voted(reached))

    def _serves(self, answers: Sequence[StrategyAnswer]) -> int:
        """The state's choice, if that answer may be shown; else, of the largest agreeing group, the best model's
        answer."""
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
    """A stable place in 0..1 for a session or request, so that a conversation stays on one side; for each purpose
    another one."""
    return int.from_bytes(blake2b(subject.encode(), digest_size=7, person=purpose).digest()) / 2**56
