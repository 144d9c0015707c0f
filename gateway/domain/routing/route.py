"""The route of a request: the backends in the order of calls, and the reason for the choice.

Treat these values as immutable. The classes are not frozen, because creating a frozen instance takes four times as
long, and each request creates several instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.domain.backend import Backend
from gateway.domain.prompt_cache import CacheMarks
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.class_trial import ClassTrial, TrialKey
from gateway.domain.routing.strategy import RunningStrategy


@dataclass(slots=True)
class Grade:
    """The difficulty of a request, 0..1. If it is high, the strong tier probably answers much better than the weak
    tier."""

    difficulty: float
    abstained: bool = False
    """Whether the prompt is outside the classifier's domain. Then the reference answers."""


@dataclass(slots=True)
class Considered:
    """A backend that routing considered for a request, as `explain` and the flight record show it."""

    backend: str
    excluded: str = ""
    """Why the backend cannot serve the request; empty if it can."""
    adequacy: float | None = None
    cost_pico: int | None = None


@dataclass(slots=True)
class Prefix:
    """Identifies the conversation of a request, and the request's position in it. It contains a digest of the session,
    but no text."""

    session: bytes
    """Digest of the session. The API key is part of it, so requests of two keys never share a session."""
    lengths: tuple[int, ...] = ()
    """Number of characters of each turn. If the conversation has only grown since the previous request, the list begins
    with the list of that request."""
    in_tool_loop: bool = False
    """Whether the last turns are results of tools."""
    turns: int = 0
    """Number of turns. It can be larger than the length of `lengths`."""


@dataclass(slots=True)
class Decision:
    """A decision of routing that is only recorded, while another backend serves the request. This happens if the
    policy only observes, if the request is outside the rollout, or if the request is used for comparison.
    """

    calls: tuple[tuple[Backend, float], ...]
    """(Backend, expected calls per request) in calling order, for the backends that would have been called. An expected
    number is 1 or a probability."""
    adequacy: float
    """Expected adequacy, 0..1."""


@dataclass(slots=True)
class ClassDecision:
    """The decision about a request without a grade, made according to its traffic class."""

    key: TrialKey
    """The class, and the cheaper backend about which the decision is."""
    trial: ClassTrial | None
    """None if no answer of the backend was compared in this class."""
    serves: bool
    """Whether the backend is chosen. False: the reference is chosen."""
    confidence: float
    """A mean token probability. An answer with a lower one looks weak."""

    @property
    def reason(self) -> str:
        name, backend = self.key.traffic_class, self.key.backend
        if self.trial is None:
            return f"class {name}: {backend} was not compared yet"
        share = f"serves {self.trial.share:.0%} of sessions" if self.trial.share else "serves none"
        return f"class {name}: {backend} {share} ({self.trial.why})"


@dataclass(slots=True)
class Route:
    """The route of a request. `backends`: in the order of calls. The first one serves the request; the others are
    fallbacks as long as no byte was sent to the client."""

    backends: tuple[Backend, ...]
    reason: str
    escalate_to: Backend | None = None
    escalate_below: float = 0.0
    """A mean token probability. If the mean token probability of the first backend's answer is lower than this value,
    `escalate_to` answers."""
    grade: Grade | None = None
    reference: Backend | None = None
    considered: tuple[Considered, ...] = ()
    observed: Backend | None = None
    """The backend that would have served, if observe mode prevents it."""
    decided: Decision | None = None
    """What routing decided, if `backends` differs from it."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Expected output tokens, from which cost and hold are computed."""
    quality: float | None = None
    """The quality that routing required; None if the choice did not depend on quality."""
    pressure: float = 0.0
    """How far the team's spend is ahead of an even spend, 0..1. This value has lowered `quality`."""
    asking: RunningStrategy | None = None
    """The strategy that decides which of `backends` are called, until an answer is good enough. None: the first backend
    serves, and the others are fallbacks."""
    strategy: str = ""
    """A short description of the strategy, for the flight record."""
    ceiling_pico: int | None = None
    """The expected cost, in pico-dollars, of the model that the client named, or else of the reference. None if
    unknown."""
    above: frozenset[str] = frozenset()
    """Names of backends that are expected to cost more than the ceiling. They serve only if the other backends fail or
    cannot serve."""
    prefix: Prefix | None = None
    """The conversation of the request. After the answer, its sessions are updated."""
    by_class: ClassDecision | None = None
    """None if the choice did not depend on the traffic class."""
    what_if: Callable[[], tuple[str, ...]] | None = field(default=None, compare=False, repr=False)
    """A function that returns sentences about what would have changed the choice. It keeps no prompt, and runs on
    demand."""


class ContextEstimate:
    """The estimated number of tokens of the request, and the lowest number that trimming can reach."""

    __slots__ = ("_least", "tokens")

    def __init__(self, tokens: int, least: int | Callable[[], int]) -> None:
        """`least`: the lowest number of tokens that trimming can reach, or a function that computes it. The function
        reads all turns."""
        self.tokens = tokens
        self._least = least

    @property
    def least(self) -> int:
        if not isinstance(self._least, int):
            self._least = self._least()
        return self._least


@dataclass(frozen=True, slots=True)
class Attached:
    """The maximum number of input tokens of all content other than text, by kind of content."""

    document: int = 0
    image: int = 0
    audio: int = 0

    @property
    def total(self) -> int:
        return self.document + self.image + self.audio

    @property
    def kind(self) -> str:
        """`text` if nothing is attached, otherwise the names of the attached kinds, joined by `+`."""
        if self is NOTHING_ATTACHED:
            return "text"
        names = [name for name in ("document", "image", "audio") if getattr(self, name)]
        return "+".join(names) or "text"


NOTHING_ATTACHED = Attached()


@dataclass(slots=True)
class ContextPlan:
    """The plan of the content that is sent to one backend: the turns that are dropped, and the turns that are
    shortened."""

    tokens_before: int
    tokens_after: int
    drop: frozenset[int] = frozenset()
    """Indexes of the turns to drop."""
    replace: dict[int, str] = field(default_factory=dict)
    """Index of a turn → its shortened text."""
    attached: Attached = NOTHING_ATTACHED
    """Tokens of the attachments. `tokens_before` and `tokens_after` include them."""
    attached_usual: int = 0
    """The number of tokens that the attachments usually have. It is at most the total of `attached`."""
    counted_tokens: int = 0
    """Exact number of tokens of the text that is sent. 0 if it was only estimated, because it is far below
    every limit."""
    marks: CacheMarks | None = None
    """Marks for the backend's prompt cache. None if the client's own marks are sent."""
    no_thinking: frozenset[int] = frozenset()
    """Indexes of the turns that are sent without their thinking blocks."""
    anchor: int = 0
    """Index of a message: the next cut of the conversation will begin there or later. 0: unknown."""
    cache_fields: bytes = b""
    """Members for the front of the body, as JSON with a comma at the end. They steer OpenAI's prompt cache."""
    frozen: bool = False
    """Whether the parts that are left out are also left out of the next requests of the session."""
    instead: CompletionRequest | None = None
    """The request without the tool definitions that are left out. It is sent instead of the client's request."""
    predicted_tokens: int = 0
    """Expected number of tokens of the input that is sent, computed from the size that the backend reported for an
    earlier request of the session. 0 if the backend reported none."""

    @property
    def touched(self) -> bool:
        return bool(self.drop or self.replace or self.no_thinking)

    @property
    def changes_body(self) -> bool:
        return self.touched or (self.marks is not None and self.marks.changes)

    @property
    def expected_tokens(self) -> int:
        """The expected number of input tokens of the call. If the backend reports no number, the client is charged for
        this number.
        """
        attached = self.attached
        if self.predicted_tokens:
            return self.predicted_tokens
        if attached is NOTHING_ATTACHED:
            return self.tokens_after
        return self.tokens_after - attached.total + self.attached_usual

    @property
    def trimmed_tokens(self) -> int:
        return self.tokens_before - self.tokens_after
