"""The interface of a running strategy: it decides which backend to call next, when to stop, and which answer to serve.
Cascades and the router use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

FAILED = "failed"
"""Value of `weak` if the backend did not answer."""


@dataclass(frozen=True, slots=True)
class StrategyAnswer:
    """The answer of one backend, in the form that a strategy needs."""

    backend: str
    """The name of the backend in the strategy. In serving it is a backend's name, in a replay a model's name."""
    vote: str | None
    """The normalised final answer (a number, a choice, JSON, a short string). None if the answer has no vote."""
    weak: str = ""
    """Why the answer should not be served: refusal, empty, truncated, repetition, invalid_json, off_language, unsure,
    …; empty if it may be served."""
    confidence: float | None = None
    """Mean token probability of the answer. None if the backend sent no log-probabilities."""


class RunningStrategy(Protocol):
    """The strategy of one request. It uses neither I/O nor a clock: the same answers always lead to the same next step.

    `answers`: the answers in the order of the calls. A failed backend has an entry, too, with FAILED as `weak`. Such
    an entry is served only if there is no other answer.
    """

    def next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        """The backends to call now, usually one. Empty if an answer was chosen or no backend is left."""
        ...

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        """The index of the answer to serve. There must be at least one answer."""
        ...
