"""Escalation as a strategy of two backends: if the first answer is too weak, the stronger backend answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.routing.strategy import FAILED, StrategyAnswer


@dataclass(frozen=True, slots=True)
class Escalation:
    """A `RunningStrategy` with two backends. If the first backend's answer is weak, the stronger backend is called. If
    the first backend fails, the strategy ends."""

    first: str
    stronger: str

    def next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        if not answers:
            return (self.first,)
        return (self.stronger,) if len(answers) == 1 and answers[0].weak not in ("", FAILED) else ()

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        return max(index for index, answer in enumerate(answers) if index == 0 or answer.weak != FAILED)
