"""The record of one request. Packages add facts to the record; ledger, telemetry and response headers read them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gateway.domain.backend import Backend
from gateway.domain.money.pace import Pace, streamed_tokens
from gateway.domain.money.usage import Usage, interrupted, with_unseen
from gateway.domain.prompt_cache import CacheMarks
from gateway.domain.request import DialectName
from gateway.domain.routing.route import Route
from gateway.domain.routing.strategy import StrategyAnswer
from gateway.domain.tenant import Tenant

Outcome = Literal["open", "ok", "failed", "interrupted", "escalated"]
CacheResult = Literal["exact", "semantic", "join", "miss", "bypass", "off"]
KEEP_ALIVE = "keep_alive"
"""The kind of an attempt that only keeps a session's prompt in a provider's cache. Its answer is sent to no client."""
SUMMARY = "summary"
"""The kind of an attempt that writes notes about old turns of a session. Its answer is sent to no client."""
FOR_SESSIONS = (KEEP_ALIVE, SUMMARY)
"""The kinds of calls that the gateway makes to save on a session. Their cost belongs to the session, but they are no
requests."""

_LEAST_BYTES = 4
"""Minimum bytes of a token in a stream, including the JSON around the token."""
CHUNK_BITS = 28
"""The lower `CHUNK_BITS` bits of `Attempt.progress[0]` count chunks, and the upper bits count bytes. So the limits are
2**28 chunks and 64 GiB."""

_RANDOM_BYTES = 10
_AT_ONCE = 256
"""Number of ids whose random bytes are read together."""


def new_request_id() -> str:
    """Make a request id that sorts by time and cannot be guessed: 12 hex digits for the milliseconds, then 20 random
    hex digits."""
    return f"req_{time.time_ns() // 1_000_000:012x}{os.urandom(_RANDOM_BYTES).hex()}"


class RequestIds:
    """Makes request ids of the same form as the function `new_request_id`. This is faster, because random bytes for
    many ids are read at once. A forked process needs a new object, because a copy would make the same ids again.
    """

    def __init__(self) -> None:
        self._random: list[str] = []

    def new(self) -> str:
        if not self._random:
            self._random = os.urandom(_RANDOM_BYTES * _AT_ONCE).hex(" ", _RANDOM_BYTES).split()
        return f"req_{time.time_ns() // 1_000_000:012x}{self._random.pop()}"


class Reporter(Protocol):
    """Reads the usage from an answer while the answer arrives."""

    @property
    def reported(self) -> Usage | None:
        """The usage that the backend has reported so far. It may be incomplete. None if the backend has reported
        nothing.
        """
        ...

    def delivered_characters(self) -> int: ...

    @property
    def most_characters(self) -> int: ...


@dataclass(slots=True, eq=False)
class Attempt:
    """One call of one backend. The ledger's row of the call has the same id."""

    id: str
    number: int
    backend: Backend
    started_at: float
    """Time at which the call began, in Unix seconds."""
    outcome: Outcome = "open"
    status: int | None = None
    error: str = ""
    input_tokens: int = 0
    """The gateway's own count of the input tokens that it sent. Used if the backend reports none."""
    chunks: int = 0
    """Number of stream events with content that have arrived."""
    output_bytes: int = 0
    """Number of bytes of the answer that have arrived. The journal stores it while the answer arrives."""
    usage: Usage | None = None
    cost_pico: int | None = None
    """The cost in pico-dollars; None if the price is unknown."""
    price_source: str = ""
    price_text: str = ""
    """The unit prices, for a client that is a gateway. Empty for other clients."""
    first_byte_at: float | None = None
    ended_at: float | None = None
    trimmed_tokens: int = 0
    frozen: bool = False
    """See `ContextPlan.frozen`."""
    counted_tokens: int = 0
    """See `ContextPlan.counted_tokens`."""
    marks: CacheMarks | None = None
    """See `ContextPlan.marks`."""
    confidence: float | None = None
    """Mean token probability of the answer, if the backend sent log-probabilities."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    """Headers of the backend's response that are used later, such as rate limits. Names are in lower case."""
    service_tier: str = ""
    """The service tier that was requested (named as in `Usage.service_tier`). An answer without reported usage is
    billed at this tier."""
    unpriced: str = ""
    """Units without a price, as text from `unpriced_units`."""
    kind: str = ""
    """`hedge`: the slower of two attempts for one answer. `shadow`: an attempt for comparison, whose answer is sent to
    no client. `keep_alive`, `summary`: see `FOR_SESSIONS`. Empty: an ordinary attempt."""
    sent_bytes: int = 0
    """Number of bytes of the request body that were sent to the backend."""
    output_cap: int | None = None
    """Maximum output tokens per answer that the gateway requested of the backend, because the budget pays for no more.
    None if there was no cap."""
    policy_cap: int | None = None
    """See `CompletionRequest.output_cap`."""
    most_output: int | None = None
    """Maximum output tokens of all answers of the attempt together; None if unlimited."""
    pace: Pace | None = None
    """Measurements of the backend: of its streams, or of its answers that are not streamed, whichever this
    attempt has."""
    above_ceiling: bool = False
    """Whether the call was expected to cost more than the model that the client named."""
    spoke_at: float | None = None
    """Unix time at which the first text of a stream arrived."""
    progress: memoryview | None = None
    """Two 64-bit words in the worker's table of slots (`gateway/ledger/journal/slots.py`). They survive the process."""
    reporter: Reporter | None = None
    """Reads the reported usage from a stream in progress."""
    looked_at: tuple[int, int, int] | None = None
    """(Characters, chunks, bytes) that had arrived when the stream was measured for the first time."""

    def estimate_usage(self, delivered: int) -> None:
        """If `usage` is unknown, estimate it from the backend's last report and the output that arrived.
        `delivered`: number of output tokens that arrived.
        """
        reporter, self.reporter = self.reporter, None
        if self.usage is None:
            found = interrupted(reporter.reported if reporter else None, self.input_tokens, delivered)
            plain = self.pace is not None and self.pace.plain
            self.usage = with_unseen(found, self._unseen(time.time()), self.most_output, plain=plain)

    def _unseen(self, now: float) -> int:
        """Estimate the number of tokens that the backend generated before its first text."""
        if self.pace is None or not self.pace.hides or not self.started_at:
            return 0
        if self.pace.plain and self.ended_at is not None:  # the complete answer has arrived
            return 0
        return self.pace.tokens((self.spoke_at or now) - self.started_at)

    def bound(self, asked: int | None, answers: int, *, one_context: bool) -> None:
        """Set `most_output` from the limits of the client, the budget, the backend and the context window. `asked`:
        the client's limit for one answer. `answers`: number of answers. `one_context`: whether the whole input
        takes up space in the context window of each answer.
        """
        backend, cap = self.backend, self.output_cap
        most, known, window = asked, backend.max_output_tokens, backend.window_tokens
        if cap is not None and (most is None or cap < most):
            most = cap
        if known is not None and (most is None or known < most):
            most = known
        if window is not None:
            left = max(1, window - self.input_tokens) if one_context else window
            if most is None or left < most:
                most = left
        self.most_output = None if most is None else most * answers

    def look_at_pace(self) -> None:
        """Measure how many bytes of an event are not text, from a stream in progress. Does nothing if a complete
        stream of the same backend was measured before.
        """
        pace, reporter = self.pace, self.reporter
        if pace is None or reporter is None or not pace.wants_look(self.chunks):
            return
        try:
            characters = reporter.delivered_characters()
        except Exception:  # the stream may contain anything, and this is only an estimate
            return
        now = (characters, self.chunks, self.output_bytes)
        if self.looked_at is None:
            self.looked_at = now
        pace.look(*(after - before for after, before in zip(now, self.looked_at, strict=True)))

    def learn_pace(self) -> None:
        """Learn from the usage of a complete answer how fast the backend generates unseen tokens."""
        usage, pace = self.usage, self.pace
        if pace is None or usage is None or usage.estimated or not self.ended_at:
            return
        if self.spoke_at is None:  # the answer was not streamed: no part of it was seen before its end
            pace.learn(usage.all_output, self.ended_at - self.started_at)
            return
        pace.learn_frame(usage.all_output, usage.reasoning_tokens, self.chunks, self.output_bytes)
        if pace.hides:
            unseen = usage.all_output - streamed_tokens(self.chunks, self.output_bytes, pace.frame_bytes)
            if reasoning := usage.reasoning_tokens:
                hidden = reasoning if unseen > reasoning / 2 else 0  # some backends show their reasoning
            else:
                hidden = unseen if unseen > usage.all_output / 2 else 0
            pace.learn(hidden, self.spoke_at - self.started_at)

    @property
    def reported(self) -> Usage | None:
        """The usage that the backend has reported so far. It may be incomplete. None if the backend has reported
        nothing.
        """
        return self.usage or (self.reporter.reported if self.reporter else None)

    @property
    def seen(self) -> int:
        """The maximum number of output tokens that may have arrived: one for every four bytes of the stream, and at
        least one per chunk."""
        return max(self.chunks, self.output_bytes // _LEAST_BYTES)

    def came(self, size: int, chunks: int) -> None:
        """Store that `size` more bytes of the answer have arrived. `chunks`: total number of chunks with content so
        far. Call this before the bytes are passed on."""
        self.output_bytes += size
        self.chunks = chunks
        if self.spoke_at is None and chunks:
            self.spoke_at = now = time.time()
            if self.progress is not None:
                self.progress[1] = int(now * 1000)
        # stored as one word: after the process is killed, the word has either the old or the new value
        if self.progress is not None:
            self.progress[0] = self.output_bytes << CHUNK_BITS | chunks


@dataclass(slots=True, eq=False)
class Record:
    request_id: str
    tenant: Tenant
    model: str
    dialect: DialectName
    stream: bool
    started_at: float = field(default_factory=time.time)
    started: float = field(default_factory=time.perf_counter)
    attempts: list[Attempt] = field(default_factory=list, init=False)
    cache: CacheResult = "off"
    saved_pico: int | None = None
    """The cost of the answer at the backend that first gave it, in pico-dollars. A cache hit saves this cost."""
    cache_score: float | None = None
    route: Route | None = None
    difficulty: float | None = None
    trimmed_tokens: int = 0
    escalated: bool = False
    weak: bool = False
    """Whether a stronger backend should have answered, but could not be called."""
    cost_pico: int | None = None
    finish: str = ""
    status: int = 200
    error: str = ""
    first_byte_ms: float | None = None
    duration_ms: float | None = None
    degraded: set[str] = field(default_factory=set, init=False)
    tags: dict[str, str] = field(default_factory=dict)
    session: str = ""
    """The session that the client named with `x-thriftgate-session`, or else the session id of the coding agent."""
    of_gateway: bool = False
    """Whether another gateway sent the request. That gateway reads the prices in the answer."""
    agent: str = ""
    """The coding agent that sent the request; empty if no agent was recognised."""
    traffic_class: str = ""
    """Language, needs and step of the request, as text from `domain/traffic.py`."""
    end_user: str = ""
    """Pseudonym of the end user that the client named."""
    over_budget: tuple[str, ...] = ()
    """Soft budgets that are exhausted."""
    ratelimit: dict[bytes, bytes] = field(default_factory=dict, init=False)
    """`x-ratelimit-*` headers of the response. The rate limits set them."""
    kind: str = ""
    """Kind of all attempts of the request: `shadow`, `keep_alive` or `summary` if the answer is sent to no client."""
    before: int = 0
    """Number of attempts of this request that are on another record."""
    answers: Sequence[StrategyAnswer] = ()
    """The answers that a strategy of several backends received, in the order of the calls."""
    others: Callable[[asyncio.Task[Any]], bool] | None = None
    """Function that is called when the client leaves. It returns whether other requests still need the answer of the
    task that serves this request."""
    trace: Mapping[bytes, bytes] | None = None
    """The client's headers, including `traceparent` and `tracestate` if it sent them."""
    notes: list[dict[str, Any]] = field(default_factory=list, init=False)
    """Facts with their times, for the flight record. They must never contain prompts or keys."""

    def note(self, what: str, **facts: Any) -> None:
        self.notes.append({"ms": round((time.perf_counter() - self.started) * 1000, 3), "what": what, **facts})

    @property
    def next_id(self) -> str:
        """The id that the next attempt of this request gets."""
        return f"{self.request_id}-{self.before + len(self.attempts) + 1}"

    def attempt(self, backend: Backend) -> Attempt:
        """Make the next attempt of this request, with the next number."""
        number = self.before + len(self.attempts) + 1
        attempt = Attempt(f"{self.request_id}-{number}", number, backend, time.time(), kind=self.kind)
        if self.route is not None and backend.name in self.route.above:
            attempt.above_ceiling = True
        self.attempts.append(attempt)
        return attempt

    @property
    def curtailed(self) -> bool:
        """Whether the answer to the client ended early because the budget did not allow more. Such an answer is not
        stored and not compared, and its length is not learned."""
        if self.finish != "length":
            return False
        served = self.served_by
        return served is not None and served.output_cap is not None

    @property
    def served_by(self) -> Attempt | None:
        """The attempt whose answer the client gets. If no attempt succeeded, this is the last attempt."""
        attempts = self.attempts
        if len(attempts) == 1:
            return attempts[0]
        # if the stronger backend was interrupted, the weak answer serves
        for outcomes in (("ok", "open"), ("interrupted",)):
            for attempt in reversed(attempts):
                if attempt.outcome in outcomes:
                    return attempt
        return attempts[-1] if attempts else None
