"""A route: backends in order, and the reason.

Treat these values as immutable. They are not frozen, because several are made per request and a frozen one takes four
times as long.
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
    """The prompt lies outside the classifier's domain: use the baseline."""


@dataclass(slots=True)
class Considered:
    """One candidate in the decision, for `explain` and the flight record."""

    backend: str
    excluded: str = ""
    """Why it cannot serve; empty if it can."""
    adequacy: float | None = None
    cost_pico: int | None = None


@dataclass(slots=True)
class Prefix:
    """A request's place in its conversation: a digest, no text."""

    session: bytes
    """Digest of the session, including the key: requests of two keys never share a session."""
    lengths: tuple[int, ...] = ()
    """Characters of each turn. If the conversation only grew, they begin with those of its previous request."""
    in_tool_loop: bool = False
    """Whether its last turns are tool results."""


@dataclass(slots=True)
class Decision:
    """What routing decided, if something else serves: in observe mode, outside the rollout, or in the comparison
    group."""

    calls: tuple[tuple[Backend, float], ...]
    """(Backend that would have been called, expected calls per request: 1 or a probability), in order."""
    adequacy: float
    """Expected adequacy, 0..1."""


@dataclass(slots=True)
class Route:
    """`backends[0]` serves; the others are fallbacks, in order, before the first byte."""

    backends: tuple[Backend, ...]
    reason: str
    escalate_to: Backend | None = None
    escalate_below: float = 0.0
    """If the first backend's answer has a lower mean token probability, `escalate_to` answers instead."""
    grade: Grade | None = None
    reference: Backend | None = None
    considered: tuple[Considered, ...] = ()
    observed: Backend | None = None
    """In observe mode, the backend that would have served."""
    decided: Decision | None = None
    """The decision, if `backends` differs from it."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Expected output tokens, for cost and hold."""
    quality: float | None = None
    """The quality required of the choice; None if the choice did not depend on it."""
    pressure: float = 0.0
    """0..1: how far spend ahead of plan has lowered `quality`."""
    asking: RunningStrategy | None = None
    """The strategy that decides which of `backends` to call until an answer is good enough; None: the first serves, the
    others are fallbacks."""
    strategy: str = ""
    """A short description of the strategy, for the flight record."""
    prefix: Prefix | None = None
    """The conversation that the request belongs to, for what is learned from the answer."""
    what_if: Callable[[], tuple[str, ...]] | None = field(default=None, compare=False, repr=False)
    """Returns sentences about what would have changed the choice. Holds no prompt; computed on demand."""


class ContextEstimate:
    """Tokens of the untouched request, and the fewest that trimming could reach."""

    __slots__ = ("_least", "tokens")

    def __init__(self, tokens: int, least: int | Callable[[], int]) -> None:
        """`least` may be a function, because it reads every turn and is needed only if the whole request does not fit a
        window."""
        self.tokens = tokens
        self._least = least

    @property
    def least(self) -> int:
        if not isinstance(self._least, int):
            self._least = self._least()
        return self._least


@dataclass(frozen=True, slots=True)
class Attached:
    """Most input tokens of a request's content other than text, by kind."""

    document: int = 0
    image: int = 0
    audio: int = 0

    @property
    def total(self) -> int:
        return self.document + self.image + self.audio

    @property
    def kind(self) -> str:
        """`text`, or the names of the attached kinds, joined by `+`."""
        if self is NOTHING_ATTACHED:
            return "text"
        names = [name for name in ("document", "image", "audio") if getattr(self, name)]
        return "+".join(names) or "text"


NOTHING_ATTACHED = Attached()


@dataclass(slots=True)
class ContextPlan:
    """What to send to one backend: which turns are dropped and which are shortened."""

    tokens_before: int
    tokens_after: int
    drop: frozenset[int] = frozenset()
    """Indexes of the turns to drop."""
    replace: dict[int, str] = field(default_factory=dict)
    """Index of a turn → its shortened text."""
    attached: Attached = NOTHING_ATTACHED
    """Included in `tokens_before` and `tokens_after`."""
    attached_usual: int = 0
    """The usual tokens of `attached`; at most its total."""
    counted_tokens: int = 0
    """Tokens of the sent text, counted exactly; 0: only estimated, since it is far below every limit."""
    marks: CacheMarks | None = None
    """Marks for the backend's prompt cache; None: as the client sent them."""
    no_thinking: frozenset[int] = frozenset()
    """Indexes of turns that are sent without their thinking blocks."""
    anchor: int = 0
    """Index of the message before which the next cut will not begin; 0: unknown."""
    frozen: bool = False
    """Whether what is left out stays left out in the session's next requests."""

    @property
    def touched(self) -> bool:
        return bool(self.drop or self.replace or self.no_thinking)

    @property
    def changes_body(self) -> bool:
        return self.touched or (self.marks is not None and self.marks.changes)

    @property
    def expected_tokens(self) -> int:
        """The usual tokens of the sent input: billed if the backend reports none."""
        attached = self.attached
        if attached is NOTHING_ATTACHED:
            return self.tokens_after
        return self.tokens_after - attached.total + self.attached_usual

    @property
    def trimmed_tokens(self) -> int:
        return self.tokens_before - self.tokens_after
