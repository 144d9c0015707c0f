"""A running strategy: which backend to call next, when to stop, and which answer to serve. Shared by cascade and
router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

FAILED = "failed"
"""Value of `weak` for a backend that gave no answer."""


@dataclass(frozen=True, slots=True)
class StrategyAnswer:
    """One backend's answer, as a strategy sees it."""

    backend: str
    """Its name in the strategy: a model's in a replay, a backend's in serving."""
    vote: str | None
    """The normalised final answer (a number, a choice, JSON, a short string); None: no vote."""
    weak: str = ""
    """Why the answer should not be served: refusal, empty, truncated, repetition, invalid_json, off_language, unsure, …
    """
    confidence: float | None = None
    """Mean token probability, where the backend gave log-probabilities."""


class RunningStrategy(Protocol):
    """The strategy of one request. Pure: no I/O, no clock; the same answers always lead to the same next step.

    `answers` are in the order of payment. A backend without an answer is among them with `weak` FAILED and no vote: it
    is not called again, and its entry is served only if there is no other.
    """

    def next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        """The backends to call now, normally one; empty if an answer was chosen or no backend is left."""
        ...

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        """Index of the served answer among `answers`, of which there is at least one."""
        ...
