"""Which backends, in which order, and why.

Nobody changes these values; they are not frozen because several are made for each request, and that costs four times as
much frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.domain.backend import Backend


@dataclass(slots=True)
class Grade:
    """How hard a request is: 0..1, any monotone score of the expected gain from the strong tier."""

    difficulty: float
    abstained: bool = False
    """The prompt lies outside what the classifier knows: use the reference."""


@dataclass(slots=True)
class Considered:
    """One candidate in the decision, for `explain` and the flight record."""

    backend: str
    excluded: str = ""
    """Why it cannot serve; empty when it can."""
    adequacy: float | None = None
    cost_pico: int | None = None


@dataclass(slots=True)
class Route:
    """`backends[0]` serves; the others, in order, are fallbacks before the first byte."""

    backends: tuple[Backend, ...]
    reason: str
    escalate_to: Backend | None = None
    escalate_below: float = 0.0
    """Mean token probability of the first backend's answer under which `escalate_to` answers instead."""
    grade: Grade | None = None
    reference: Backend | None = None
    considered: tuple[Considered, ...] = ()
    observed: Backend | None = None
    """In observe mode: the backend that would have served."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Expected, for cost and hold."""
    quality: float | None = None
    """Wanted of the choice; None where nothing was chosen by it."""
    pressure: float = 0.0
    """0..1: how far the team's budgets, ahead of their plan, have lowered `quality`."""


class ContextEstimate:
    """Tokens of a request untouched, and the least that trimming could reach."""

    __slots__ = ("_least", "tokens")

    def __init__(self, tokens: int, least: int | Callable[[], int]) -> None:
        """`least` may be worked out when it is first asked for: it takes a look at every turn, and most windows have
        room for all of them."""
        self.tokens = tokens
        self._least = least

    @property
    def least(self) -> int:
        if not isinstance(self._least, int):
            self._least = self._least()
        return self._least


@dataclass(slots=True)
class ContextPlan:
    """What to send to one backend: which turns go, which are shortened."""

    tokens_before: int
    tokens_after: int
    drop: frozenset[int] = frozenset()
    """Indexes of turns to leave out."""
    replace: dict[int, str] = field(default_factory=dict)
    """Index of a turn → its shortened text."""

    @property
    def touched(self) -> bool:
        return bool(self.drop or self.replace)

    @property
    def trimmed_tokens(self) -> int:
        return self.tokens_before - self.tokens_after
