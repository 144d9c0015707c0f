"""Interfaces between packages of one layer, which do not import each other."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.domain.answer import Answer
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt, Outcome, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.learned import NOTHING, Learned
from gateway.domain.routing.load import Load
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached, ContextEstimate, ContextPlan, Prefix
from gateway.domain.tenant import Tenant


class Clock(Protocol):
    def time(self) -> float:
        """Unix seconds."""
        ...

    def monotonic(self) -> float: ...


class Embedder(Protocol):
    """Text → unit vector (float32, `dimensions`). Runs off the loop; raises EmbedderUnavailable."""

    name: str
    dimensions: int
    max_tokens: int

    @property
    def ready(self) -> bool:
        """Is the model loaded? Until then, requests are answered without vectors."""
        ...

    @property
    def failed(self) -> bool:
        """It could not be loaded and will not be."""
        ...

    def begin(self) -> None:
        """Load in the background, if that has not begun."""
        ...

    async def embed(self, text: str, owner: str = "") -> Any | None:
        """The vector; None if the text is longer than the model reads. Vectors remembered for one `owner` are not used
        for another."""
        ...


class TokenCounter(Protocol):
    def estimate(self, text: str) -> int:
        """Calibrated from byte lengths; microseconds."""
        ...

    def count(self, text: str) -> int:
        """Exact for the tokenizer family; call off the loop for long text."""
        ...

    def at_once(self, text: str) -> int:
        """Exact where that takes no time, else the estimate: for callers on the loop that cannot wait."""
        ...


class PriceList(Protocol):
    def price(self, backend: Backend) -> Price | None:
        """None: unknown, which is never 0."""
        ...


@dataclass(slots=True)
class BackendState:
    available: bool
    reason: str = ""
    in_flight: int = 0
    first_byte_ms: float | None = None
    load: Load | None = None
    """None: nothing is known beyond what this worker has in flight."""
    wait_s: float = 0.0
    """About how long a further request would wait for its turn there."""


class FleetView(Protocol):
    """The current health of backends."""

    def state(self, backend: Backend) -> BackendState: ...


class SessionView(Protocol):
    """How much of a conversation each backend still has in its prompt cache."""

    def warm_tokens(self, prefix: Prefix, backend: Backend, input_tokens: int) -> int:
        """Of `input_tokens`, those that `backend` is expected to read from its cache."""
        ...


class Contexts(Protocol):
    def estimate(self, request: CompletionRequest) -> ContextEstimate: ...

    def plan_for(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None = None
    ) -> Awaitable[ContextPlan]:
        """Raises ContextTooLong when even trimmed it does not fit. `prefix`: the session, if it has one."""
        ...

    def learn(self, record: Record) -> None:
        """Remember the input size that the backend reported for the session."""
        ...


class Hold(Protocol):
    """Money set aside for one request."""

    covers: float
    """`Attempt.seen` up to which `grow` need not be called."""
    output_limit: int | None
    """Most output tokens that may be asked of the backend, where what is held pays for no more."""

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        """Hold enough for a call of `backend` too. `input_tokens` includes `attached`; `marked`: the gateway marks
        what the backend's prompt cache is to keep. Raises BudgetExhausted."""
        ...

    async def grow(self, output_tokens: int, seen: int) -> None:
        """The answer has `output_tokens` by its text, and its attempt has `seen` so many at most: see that what is held
        covers it. Raises BudgetExhausted."""
        ...

    def follow(self, attempt: Attempt) -> None:
        """Of several that were held for, this one's answer is served: `covers` and `grow` are about it."""
        ...


@dataclass(frozen=True, slots=True)
class BudgetChecker:
    """The owner whose spend is read; empty parts are ignored."""

    organisation: str = ""
    team: str = ""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class SpentReader:
    """Simulated attempts count nothing; those of unknown price no money, those that were free no tokens."""

    pico: int = 0
    tokens: int = 0


class EndUsers(Protocol):
    """Replaces the names of end users by pseudonyms."""

    def note(self, body: dict[str, Any], record: Record) -> None:
        """Set `record.end_user` from the request's `body`."""
        ...


class Spending(Protocol):
    """What was really spent: the truth that counters are rebuilt from. May raise when the ledger cannot be read."""

    def spent(self, payer: BudgetChecker, since: float, until: float) -> Awaitable[SpentReader]:
        """By attempts of requests that began in `[since, until)` (Unix seconds; `until` may be infinite), as far as the
        attempts have ended, those of dead workers included."""
        ...

    def spent_by_end_users(
        self, team: str, since: float, until: float, end_users: Collection[str]
    ) -> Awaitable[Mapping[str, SpentReader]]:
        """Likewise, for each of the `end_users` (pseudonyms) of one team; those without spend are left out."""
        ...


class AttemptJournal(Protocol):
    """The ledger as callers of backends use it: one entry per attempt."""

    def open(self, attempt: Attempt, record: Record) -> None:
        """Journal the *opened* entry; the call may start only afterwards. Raises LedgerUnavailable."""
        ...

    def close(self, attempt: Attempt, record: Record) -> None:
        """Price the attempt (sets `cost_pico`, `price_source`) and journal the *closed* entry. Once only."""
        ...

    def cached(self, record: Record, usage: Usage, saved_pico: int | None, outcome: Outcome = "ok") -> None:
        """Journal an answer that this request did not buy, stored or shared: cost 0, with what it would have cost."""
        ...


class Archive(Protocol):
    """What the ledger has of a request that is in no memory any more."""

    async def find(self, request_id: str, team: str) -> dict[str, Any] | None:
        """A flight record as JSON values, shorter than the recorder's own; None: this team has no such request."""
        ...


class Sampler(Protocol):
    """The settings of `learning` that lower layers need."""

    def holdout(self, request: CompletionRequest) -> bool:
        """Serve this request from the reference, to have something to compare with?"""
        ...

    def offer(self, request: CompletionRequest, record: Record, answer: Answer) -> None:
        """A request that was served, before its answer is closed. Quick, never raises; what is wanted of it goes on a
        bounded queue, and is dropped when that is full."""
        ...


class Evidence(Protocol):
    """What a team's own answers have taught about a backend."""

    def adjust(self, team: str, backend: str) -> Learned:
        """From memory; `NOTHING` for a backend without judged answers."""
        ...


class NoEvidence:
    """Implements `Evidence` where nothing is learned."""

    def adjust(self, team: str, backend: str) -> Learned:
        return NOTHING


@dataclass(frozen=True, slots=True)
class FreshAnswer:
    """An answer that was paid for to compare with; no client gets it."""

    completion: bytes
    """The plain body in the request's dialect."""
    cost_pico: int | None


class FreshAnswerSource(Protocol):
    """Buys answers behind the client's back: under the tenant's budget, and a cap of its own."""

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> FreshAnswer | None:
        """A backend's answer to `request` now, booked as `shadow`; None if it may not be paid for, or if no backend
        answers."""
        ...
