"""Interfaces between packages of one layer, because these packages do not import each other."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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
    """Converts a text to a unit vector (float32, `dimensions`). Runs off the event loop; raises EmbedderUnavailable."""

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
        """Start loading in the background. Repeated calls have no effect."""
        ...

    async def embed(self, text: str, owner: str = "") -> Any | None:
        """The vector; None if the text is longer than the model can read. A vector cached for one `owner` is not used
        for another."""
        ...


class TokenCounter(Protocol):
    def estimate(self, text: str) -> int:
        """The estimated number of tokens, from byte lengths. Takes microseconds."""
        ...

    def count(self, text: str) -> int:
        """The exact number of tokens for the tokenizer family. For a long text, call it off the event loop."""
        ...

    def at_once(self, text: str) -> int:
        """The exact number of tokens if that can be counted quickly, else the estimate. For callers on the event loop
        that cannot wait."""
        ...


class PriceList(Protocol):
    def price(self, backend: Backend) -> Price | None:
        """The price; None if unknown. An unknown price is never 0."""
        ...


class ModelPrices(PriceList, Protocol):
    """Also knows models that are no backends."""

    def listed(self, model: str) -> Price | None:
        """The list price of a model by its name alone; None: unknown."""
        ...


@dataclass(slots=True)
class BackendState:
    available: bool
    reason: str = ""
    in_flight: int = 0
    first_byte_ms: float | None = None
    load: Load | None = None
    """The server's load; None: only this worker's own requests are known."""
    wait_s: float = 0.0
    """Estimated time that a further request would wait there for its turn."""
    trouble: str = ""
    """Why calls of the backend fail at present; empty if they do not, or if there was none yet."""
    headroom: float | None = None
    """Share of the provider's scarcest rate limit that is left; 0: one more call would exceed the limit; None: unknown.
    """


class FleetView(Protocol):
    """The current health of the backends."""

    def state(self, backend: Backend) -> BackendState: ...


class SessionView(Protocol):
    """Estimates how much of a conversation each backend still has in its prompt cache."""

    def warm_tokens(self, prefix: Prefix, backend: Backend, input_tokens: int) -> int:
        """The number of `input_tokens` that `backend` is expected to read from its cache."""
        ...

    def warmest(self, prefix: Prefix, input_tokens: int) -> int:
        """The most of them that any backend is expected to read from its cache."""
        ...


class Contexts(Protocol):
    def estimate(self, request: CompletionRequest) -> ContextEstimate: ...

    def plan_for(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None = None
    ) -> Awaitable[ContextPlan]:
        """The plan of what to send to `backend`. Raises ContextTooLong if the request does not fit even after trimming.
        `prefix`: the session, if any."""
        ...

    def learn(self, record: Record) -> None:
        """Store the input size that the backend reported for the session."""
        ...


class Hold(Protocol):
    """Money that is held for one request."""

    covers: float
    """`grow` need not be called until `Attempt.seen` exceeds this number of tokens."""
    output_limit: int | None
    """Maximum output tokens that the backend may be asked for, because the hold pays for no more; None: no limit."""

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        """Also hold enough for a call of `backend`. `input_tokens` includes `attached`. `marked`: the gateway marks the
        prompt for the backend's cache. Raises BudgetExhausted."""
        ...

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Make sure that the hold covers an answer. `output_tokens`: estimated from its text; `seen`: maximum tokens of
        its attempt so far. Raises BudgetExhausted."""
        ...

    def follow(self, attempt: Attempt) -> None:
        """Let `covers` and `grow` refer to `attempt`, whose answer is served. Needed if several attempts have holds."""
        ...


Subject = Literal["end_user", "session"]
"""Of which a team has so many that budgets name none of them: a column of the ledger."""


@dataclass(frozen=True, slots=True)
class BudgetChecker:
    """Identifies whose spend is read. Empty fields are ignored."""

    organisation: str = ""
    team: str = ""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class SpentReader:
    """Spend as budgets count it: nothing for simulated attempts, no money for unpriced ones, no tokens for free
    ones."""

    pico: int = 0
    tokens: int = 0


class EndUsers(Protocol):
    """Replaces the names of end users by pseudonyms."""

    def note(self, body: dict[str, Any], record: Record) -> None:
        """Set `record.end_user` from the request's `body`."""
        ...


class Spending(Protocol):
    """Reads the actual spend, from which counters are rebuilt. May raise if the ledger cannot be read."""

    def spent(self, payer: BudgetChecker, since: float, until: float) -> Awaitable[SpentReader]:
        """Spend by ended attempts of requests that began in `[since, until)` (Unix seconds; `until` may be infinite).
        Includes the attempts of dead workers."""
        ...

    def spent_by_each(
        self, by: Subject, team: str, since: float, until: float, names: Collection[str]
    ) -> Awaitable[Mapping[str, SpentReader]]:
        """Like `spent`, for each of the `names` (pseudonyms of end users, or ids of sessions) of one team. Those
        without spend are omitted."""
        ...


class AttemptJournal(Protocol):
    """The ledger as callers of backends use it: one entry per attempt."""

    def open(self, attempt: Attempt, record: Record) -> None:
        """Write the *opened* entry to the journal. The call may start only after this. Raises LedgerUnavailable."""
        ...

    def close(self, attempt: Attempt, record: Record) -> None:
        """Price the attempt (sets `cost_pico`, `price_source`) and write the *closed* entry to the journal. Call it
        only once."""
        ...

    def cached(self, record: Record, usage: Usage, saved_pico: int | None, outcome: Outcome = "ok") -> None:
        """Write an answer to the journal that this request did not pay for, because it was stored or shared. The cost
        is 0; `saved_pico` is the cost that was saved."""
        ...


class Archive(Protocol):
    """Finds requests in the ledger that no worker has in memory any more."""

    async def find(self, request_id: str, team: str) -> dict[str, Any] | None:
        """A flight record as JSON values, shorter than the recorder's own; None if this team has no such request."""
        ...


class Sampler(Protocol):
    """The part of `learning` that lower layers need."""

    def holdout(self, request: CompletionRequest) -> bool:
        """Whether to serve this request with the reference, so that it belongs to the comparison group."""
        ...

    def offer(self, request: CompletionRequest, record: Record, answer: Answer) -> None:
        """Offer a served request before its answer is closed. Fast; never raises. Useful requests go to a bounded
        queue, and are dropped if it is full."""
        ...


class Evidence(Protocol):
    """Evidence about a backend from a team's own judged answers."""

    def adjust(self, team: str, backend: str) -> Learned:
        """The evidence, read from memory. `NOTHING` for a backend without judged answers."""
        ...


class NoEvidence:
    """Implements `Evidence` without any evidence."""

    def adjust(self, team: str, backend: str) -> Learned:
        return NOTHING


@dataclass(frozen=True, slots=True)
class FreshAnswer:
    """An answer that was bought for comparison with another. It is sent to no client."""

    completion: bytes
    """The plain body in the request's dialect."""
    cost_pico: int | None


class FreshAnswerSource(Protocol):
    """Buys answers for comparison. The cost counts in the tenant's budget and in a separate cap."""

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> FreshAnswer | None:
        """A new answer of a backend to `request`, recorded as `shadow`. None if the money does not allow it or no
        backend answers."""
        ...
