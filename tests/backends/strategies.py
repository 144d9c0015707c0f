"""A strategy to serve, and who serves it: three backends that are asked until two of them agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.backend import Backend
from gateway.domain.routing.route import Route
from gateway.domain.routing.strategy import FAILED, StrategyAnswer


@dataclass(frozen=True)
class Agreement:
    """Implements `Asking`: in order, `at_once` at a time, until two votes are equal; else the last one's is given."""

    names: tuple[str, ...]
    at_once: int = 1

    def next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        if self._agreed(answers) is not None:
            return ()
        return self.names[len(answers) : len(answers) + self.at_once]

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        agreed = self._agreed(answers)
        if agreed is not None:
            return agreed
        return max((index for index, answer in enumerate(answers) if answer.weak != FAILED), default=0)

    def _agreed(self, answers: Sequence[StrategyAnswer]) -> int | None:
        """The first of those that say the same as another."""
        votes = Counter(answer.vote for answer in answers if answer.vote is not None)
        return next((index for index, answer in enumerate(answers) if answer.vote and votes[answer.vote] > 1), None)


def route_of(*backends: Backend, at_once: int = 1) -> Route:
    """The last one is the reference."""
    asking = Agreement(tuple(backend.name for backend in backends), at_once)
    return Route(backends, "test", reference=backends[-1], asking=asking, strategy="agreement")
