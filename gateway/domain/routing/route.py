"""A route: the backends in order, and the reason.

Treat these values as immutable. They are not frozen, because creating a frozen one takes four times as long, and a
request creates several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.domain.backend import Backend
from gateway.domain.prompt_cache import CacheMarks
from gateway.domain.routing.strategy import RunningStrategy


@dataclass(slots=True)
class Grade:
    """How hard a request is, 0..1: a score that rises with the expected gain from the strong tier."""

    difficulty: float
    abstained: bool = False
    """Whether the prompt is outside the classifier's domain. If so, the reference answers."""


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
    """Identifies a request's conversation and its position in it. It contains a digest and no text."""

    session: bytes
    """Digest of the session, including the key. So requests of two keys never share a session."""
    lengths: tuple[int, ...] = ()
    """Number of characters of each turn. If the conversation has only grown, the list begins with that of the previous
    request."""
    in_tool_loop: bool = False
    """Whether its last turns are tool results."""


@dataclass(slots=True)
class Decision:
    """The decision of routing, if another backend serves: in observe mode, outside the rollout, or in the comparison
    group."""

    calls: tuple[tuple[Backend, float], ...]
    """(Backend that would have been called, expected calls per request: 1 or a probability), in order."""
    adequacy: float
    """Expected adequacy, 0..1."""


@dataclass(slots=True)
class Route:
    """The route of a request. `backends[0]` serves; before the first byte, the others are fallbacks, in order."""

    backends: tuple[Backend, ...]
    reason: str
    escalate_to: Backend | None = None
    escalate_below: float = 0.0
    """Minimum mean token probability of the first backend's answer. Below it, `escalate_to` answers instead."""
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
    """The quality that was required of the choice; None if the choice did not depend on it."""
    pressure: float = 0.0
    """How much spend ahead of plan has lowered `quality`, 0..1."""
    asking: RunningStrategy | None = None
    """The strategy that decides which of `backends` to call until an answer is good enough. None: the first one serves,
    and the others are fallbacks."""
    strategy: str = ""
    """A short description of the strategy, for the flight record."""
    ceiling_pico: int | None = None
    """The expected cost of the model that the client named, else of the reference; None: unknown."""
    above: frozenset[str] = frozenset()
    """Backends that are expected to cost more than that. They serve only if the others fail or cannot."""
    prefix: Prefix | None = None
    """The conversation of the request, for learning from the answer."""
    what_if: Callable[[], tuple[str, ...]] | None = field(default=None, compare=False, repr=False)
    """Returns sentences about what would have changed the choice. It contains no prompt and is computed on demand."""


class ContextEstimate:
    """Estimated tokens of the untouched request, and the minimum that trimming can reach."""

    __slots__ = ("_least", "tokens")

    def __init__(self, tokens: int, least: int | Callable[[], int]) -> None:
        """`least` may be a function, because computing it reads every turn. It is needed only if the whole request does
        not fit a window."""
        self.tokens = tokens
        self._least = least

    @property
    def least(self) -> int:
        if not isinstance(self._least, int):
            self._least = self._least()
        return self._least


@dataclass(frozen=True, slots=True)
class Attached:
    """Maximum input tokens of a request's content other than text, by kind."""

    document: int = 0
    image: int = 0
    audio: int = 0

    @property
    def total(self) -> int:
        return self.document + self.image + self.audio

    @property
    def kind(self) -> str:
        """`text`, or the names of the attached kinds joined by `+`."""
        if self is NOTHING_ATTACHED:
            return "text"
        names = [name for name in ("document", "image", "audio") if getattr(self, name)]
        return "+".join(names) or "text"


NOTHING_ATTACHED = Attached()


@dataclass(slots=True)
class ContextPlan:
    """The plan for sending a request to one backend: which turns are dropped and which are shortened."""

    tokens_before: int
    tokens_after: int
    drop: frozenset[int] = frozenset()
    """Indexes of the turns to drop."""
    replace: dict[int, str] = field(default_factory=dict)
    """Index of a turn → its shortened text."""
    attached: Attached = NOTHING_ATTACHED
    """Tokens of the attachments. They are included in `tokens_before` and `tokens_after`."""
    attached_usual: int = 0
    """The usual tokens of `attached`, which are at most its total."""
    counted_tokens: int = 0
    """Exactly counted tokens of the sent text; 0: the text was only estimated, because it is far below every limit."""
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
        """The usual tokens of the sent input. They are billed if the backend reports none."""
        attached = self.attached
        if attached is NOTHING_ATTACHED:
            return self.tokens_after
        return self.tokens_after - attached.total + self.attached_usual

    @property
    def trimmed_tokens(self) -> int:
        return self.tokens_before - self.tokens_after
