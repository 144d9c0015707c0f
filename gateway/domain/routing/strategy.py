"""A running strategy: which backend to call next, when to stop, and which answer to serve. Cascade and router share
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

FAILED = "failed"
"""Value of `weak` for a backend that did not answer."""


@dataclass(frozen=True, slots=True)
class StrategyAnswer:
    """One backend's answer, in the form that a strategy needs."""

    backend: str
    """The backend's name in the strategy. In a replay it is the name of a model, in serving that of a backend."""
    vote: str | None
    """The normalised final answer (a number, a choice, JSON, a short string); None: no vote."""
    weak: str = ""
    """The reason why the answer should not be served: refusal, empty, truncated, repetition, invalid_json,
    off_language, unsure, …; empty if there is none."""
    confidence: float | None = None
    """Mean token probability; None if the backend sent no log-probabilities."""


class RunningStrategy(Protocol):
    """The strategy of one request. No I/O and no clock: the same answers always lead to the same next step.

    `answers` are in the order of payment. A backend that did not answer is in the list with `weak` FAILED and no vote:
    it is not called again, and its entry is served only if there is no other.
    """

    def next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        """The backends to call now, usually one; empty if an answer was chosen or no backend is left."""
        ...

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        """Index of the answer to serve. There must be at least one answer."""
        ...
