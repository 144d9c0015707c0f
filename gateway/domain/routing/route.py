"""A route: backends in order, and the reason.

Nobody changes these values; they are not frozen because several are made for each request, and that costs four times as
much frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.domain.backend import Backend
from gateway.domain.prompt_cache import CacheMarks
from gateway.domain.routing.strategy import RunningStrategy


@dataclass(slots=True)
class Grade:
    """How hard a request is: 0..1, any monotone score of the expected gain from the strong tier."""

    difficulty: float
    abstained: bool = False
    """The prompt lies outside the classifier's domain: use the reference."""


@dataclass(slots=True)
class Considered:
    """One candidate in the decision, for `explain` and the flight record."""

    backend: str
    excluded: str = ""
    """Why it cannot serve; empty when it can."""
    adequacy: float | None = None
    cost_pico: int | None = None


@dataclass(slots=True)
class Prefix:
    """A request's place in its conversation. Texts are not in it, only a digest."""

    session: bytes
    """Of one key alone: what another key sends is never the same session."""
    lengths: tuple[int, ...] = ()
    """Characters of each turn: a conversation that only grew begins with those of its last request."""
    in_tool_loop: bool = False
    """Its last turns are results of tools that the model called."""


@dataclass(slots=True)
class Decision:
    """What routing decided where something else serves: observing, outside the share, held out to compare."""

    calls: tuple[tuple[Backend, float], ...]
    """The backends that it would have called, the first one first, each with the expected calls per request: 1, or a
    probability."""
    adequacy: float
    """Expected, 0..1."""


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
    decided: Decision | None = None
    """What would have served, where `backends` is not what was decided."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Expected, for cost and hold."""
    quality: float | None = None
    """Wanted of the choice; None where nothing was chosen by it."""
    pressure: float = 0.0
    """0..1: how far the team's budgets, ahead of their plan, have lowered `quality`."""
    asking: RunningStrategy | None = None
    """The order in which to call `backends` until one answer is good enough; None: the first serves, the rest are
    fallbacks."""
    strategy: str = ""
    """A short description of the strategy, for the flight record."""
    prefix: Prefix | None = None
    """Which conversation it is part of, for what is learned from its answer."""
    what_if: Callable[[], tuple[str, ...]] | None = field(default=None, compare=False, repr=False)
    """Explains what would have changed the choice, a sentence each. Holds no prompt; computed when it is asked for."""


class ContextEstimate:
    """Tokens of a request untouched, and the least that trimming could reach."""

    __slots__ = ("_least", "tokens")

    def __init__(self, tokens: int, least: int | Callable[[], int]) -> None:
        """`least` may be a function, because it reads every turn and is needed only where the whole request does not
        fit a window."""
        self.tokens = tokens
        self._least = least

    @property
    def least(self) -> int:
        if not isinstance(self._least, int):
            self._least = self._least()
        return self._least


@dataclass(frozen=True, slots=True)
class Attached:
    """Most input tokens of what a request carries beside text, by kind of content."""

    document: int = 0
    image: int = 0
    audio: int = 0

    @property
    def total(self) -> int:
        return self.document + self.image + self.audio

    @property
    def kind(self) -> str:
        """Of the content: `text`, or the names of what is attached, joined by `+`."""
        if self is NOTHING_ATTACHED:
            return "text"
        names = [name for name in ("document", "image", "audio") if getattr(self, name)]
        return "+".join(names) or "text"


NOTHING_ATTACHED = Attached()


@dataclass(slots=True)
class ContextPlan:
    """What to send to one backend: which turns go, which are shortened."""

    tokens_before: int
    tokens_after: int
    drop: frozenset[int] = frozenset()
    """Indexes of turns to leave out."""
    replace: dict[int, str] = field(default_factory=dict)
    """Index of a turn → its shortened text."""
    attached: Attached = NOTHING_ATTACHED
    """Included in `tokens_before` and `tokens_after`."""
    attached_usual: int = 0
    """What `attached` usually comes to: at most its total."""
    counted_tokens: int = 0
    """Tokens of the text that is sent, counted exactly; 0: only estimated, as far below every limit."""
    marks: CacheMarks | None = None
    """For the backend's prompt cache; None: as the client sent them."""

    @property
    def touched(self) -> bool:
        return bool(self.drop or self.replace)

    @property
    def changes_body(self) -> bool:
        return bool(self.drop or self.replace or (self.marks is not None and self.marks.changes))

    @property
    def expected_tokens(self) -> int:
        """Of the input that is sent, as it usually comes to: billed where the backend does not say."""
        attached = self.attached
        if attached is NOTHING_ATTACHED:
            return self.tokens_after
        return self.tokens_after - attached.total + self.attached_usual

    @property
    def trimmed_tokens(self) -> int:
        return self.tokens_before - self.tokens_after
