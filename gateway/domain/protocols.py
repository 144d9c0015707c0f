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
        """Whether the model is loaded. Until then, requests are answered without vectors."""
        ...

    @property
    def failed(self) -> bool:
        """Whether loading failed for good."""
        ...

    def begin(self) -> None:
        """Start loading in the background, unless already started."""
        ...

    async def embed(self, text: str, owner: str = "") -> Any | None:
        """The vector; None if the text is longer than the model reads. A vector cached for one `owner` is not used for
        another."""
        ...


class TokenCounter(Protocol):
    def estimate(self, text: str) -> int:
        """An estimate from byte lengths; takes microseconds."""
        ...

    def count(self, text: str) -> int:
        """The exact count for the tokenizer family. Call it off the loop for long text."""
        ...

    def at_once(self, text: str) -> int:
        """The exact count if that is fast, else the estimate; for callers on the loop that cannot wait."""
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
    """None: nothing is known except this worker's own requests."""
    wait_s: float = 0.0
    """Estimated time that a further request would wait there for its turn."""
    headroom: float | None = None
    """Part of its provider's scarcest rate limit that is left; 0: one more call would exceed it; None: unknown."""


class FleetView(Protocol):
    """The current health of backends."""

    def state(self, backend: Backend) -> BackendState: ...


class SessionView(Protocol):
    """Tells how much of a conversation each backend still has in its prompt cache."""

    def warm_tokens(self, prefix: Prefix, backend: Backend, input_tokens: int) -> int:
        """How many of `input_tokens` `backend` is expected to read from its cache."""
        ...


class Contexts(Protocol):
    def estimate(self, request: CompletionRequest) -> ContextEstimate: ...

    def plan_for(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None = None
    ) -> Awaitable[ContextPlan]:
        """What to send to `backend`. Raises ContextTooLong if the request does not fit even when trimmed. `prefix`: the
        session, if any."""
        ...

    def learn(self, record: Record) -> None:
        """Remember the input size that the backend reported for the session."""
        ...


class Hold(Protocol):
    """Money set aside for one request."""

    covers: float
    """`grow` need not be called while `Attempt.seen` is at most this."""
    output_limit: int | None
    """Most output tokens that the backend may be asked for, because the hold pays for no more; None: no limit."""

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        """Also hold enough for a call of `backend`. `input_tokens` includes `attached`. `marked`: the gateway marks the
        prompt for the backend's cache. Raises BudgetExhausted."""
        ...

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Make sure that the hold covers an answer with `output_tokens` by its text, of which its attempt has `seen` at
        most. Raises BudgetExhausted."""
        ...

    def follow(self, attempt: Attempt) -> None:
        """The answer of `attempt` is served, out of several attempts with holds: `covers` and `grow` now refer to
        it."""
        ...


@dataclass(frozen=True, slots=True)
class BudgetChecker:
    """Whose spend is read; empty parts are ignored."""

    organisation: str = ""
    team: str = ""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class SpentReader:
    """What an attempt counts: simulated ones nothing, unpriced ones no money, free ones no tokens."""

    pico: int = 0
    tokens: int = 0


class EndUsers(Protocol):
    """Replaces the names of end users by pseudonyms."""

    def note(self, body: dict[str, Any], record: Record) -> None:
        """Set `record.end_user` from the request's `body`."""
        ...


class Spending(Protocol):
    """The actual spend, from which counters are rebuilt. May raise if the ledger cannot be read."""

    def spent(self, payer: BudgetChecker, since: float, until: float) -> Awaitable[SpentReader]:
        """Spend of attempts that have ended, of requests that began in `[since, until)` (Unix seconds; `until` may be
        infinite). Includes the attempts of dead workers."""
        ...

    def spent_by_end_users(
        self, team: str, since: float, until: float, end_users: Collection[str]
    ) -> Awaitable[Mapping[str, SpentReader]]:
        """As `spent`, for each of the `end_users` (pseudonyms) of one team; those without spend are left out."""
        ...


class AttemptJournal(Protocol):
    """The ledger as seen by callers of backends: one entry per attempt."""

    def open(self, attempt: Attempt, record: Record) -> None:
        """Journal the *opened* entry; the call may start only after this. Raises LedgerUnavailable."""
        ...

    def close(self, attempt: Attempt, record: Record) -> None:
        """Price the attempt (sets `cost_pico`, `price_source`) and journal the *closed* entry. Call once only."""
        ...

    def cached(self, record: Record, usage: Usage, saved_pico: int | None, outcome: Outcome = "ok") -> None:
        """Journal an answer that this request did not pay for, stored or shared: cost 0, with the cost that it
        saved."""
        ...


class Archive(Protocol):
    """Finds requests in the ledger that are no longer in any worker's memory."""

    async def find(self, request_id: str, team: str) -> dict[str, Any] | None:
        """A flight record as JSON values, shorter than the recorder's own; None if this team has no such request."""
        ...


class Sampler(Protocol):
    """What lower layers need of `learning`."""

    def holdout(self, request: CompletionRequest) -> bool:
        """Whether to serve this request from the baseline, as a comparison group."""
        ...

    def offer(self, request: CompletionRequest, record: Record, answer: Answer) -> None:
        """Offer a served request before its answer is closed. Fast, never raises; useful ones go to a bounded queue and
        are dropped when it is full."""
        ...


class Evidence(Protocol):
    """What a team's own judged answers say about a backend."""

    def adjust(self, team: str, backend: str) -> Learned:
        """Read from memory; `NOTHING` for a backend without judged answers."""
        ...


class NoEvidence:
    """Implements `Evidence` where nothing is learned."""

    def adjust(self, team: str, backend: str) -> Learned:
        return NOTHING


@dataclass(frozen=True, slots=True)
class FreshAnswer:
    """An answer that was paid for to compare with another; no client gets it."""

    completion: bytes
    """The plain body in the request's dialect."""
    cost_pico: int | None


class FreshAnswerSource(Protocol):
    """Buys answers for comparison, under the tenant's budget and a separate cap."""

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> FreshAnswer | None:
        """A backend's answer to `request` now, booked as `shadow`; None if the money does not allow it or no backend
        answers."""
        ...
