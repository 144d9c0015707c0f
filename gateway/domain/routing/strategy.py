"""A running strategy: which backend to call next, when to stop, and which answer to serve. Used by cascade and
router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

FAILED = "failed"
"""`weak` of a backend that was asked in vain."""


@dataclass(frozen=True, slots=True)
class StrategyAnswer:
    """One backend's answer, as a strategy sees it."""

    backend: str
    """Its name in the strategy: in a replay a model's, in serving a backend's."""
    vote: str | None
    """The normalised final answer (a number, a choice, JSON, a short string); None has no vote."""
    weak: str = ""
    """Why it should not be shown: refusal, empty, truncated, repetition, invalid_json, off_language, unsure, …"""
    confidence: float | None = None
    """Mean token probability, where the backend gave log-probabilities."""


class RunningStrategy(Protocol):
    """One request's strategy. Pure: no I/O, no clock, and the same answers always lead to the same next step.

    `answers` are in the order in which they were paid for. A backend that gave none stands among them with `weak`
    FAILED and no vote: it is never asked again, and never serves while another answer is there.
    """

    def next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        """The backends to call now, normally one; empty when an answer was chosen or no backend is left."""
        ...

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        """Which of `answers`, at least one, is given."""
        ...
