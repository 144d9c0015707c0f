"""Interfaces between packages of one layer. These packages do not import each other."""

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
from gateway.domain.routing.class_trial import ClassTrial, TrialKey
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
    """Converts a text to a unit vector (float32, `dimensions` numbers). Call it off the event loop. Raises
    EmbedderUnavailable."""

    name: str
    dimensions: int
    max_tokens: int

    @property
    def ready(self) -> bool:
        """Whether the model is loaded. Until then, requests are answered without vectors."""
        ...

    @property
    def failed(self) -> bool:
        """Whether loading the model has failed and is not tried again."""
        ...

    def begin(self) -> None:
        """Start loading in the background. Repeated calls have no effect."""
        ...

    async def embed(self, text: str, owner: str = "") -> Any | None:
        """The vector of `text`, shape (dimensions,); None if it is too long. `owner`: scope within which a cached
        vector is reused."""
        ...


class TokenCounter(Protocol):
    def estimate(self, text: str) -> int:
        """The estimated number of tokens of `text`, from byte lengths. The estimate takes microseconds."""
        ...

    def count(self, text: str) -> int:
        """The exact number of tokens of `text` for the tokenizer family. Call it off the event loop if the text is
        long."""
        ...

    def at_once(self, text: str) -> int:
        """The exact number of tokens if the gateway can count it quickly, otherwise the estimate. For callers on the
        event loop that cannot wait."""
        ...


class PriceList(Protocol):
    def price(self, backend: Backend) -> Price | None:
        """The price; None if unknown. An unknown price is never 0."""
        ...


class MarginalPrices(PriceList, Protocol):
    """Prices of backends, and which backends are paid already."""

    def prepaid(self, backend: Backend) -> bool:
        """Whether calls of `backend` are paid already by a commitment that is not used up."""
        ...


class ModelPrices(MarginalPrices, Protocol):
    """Prices of backends, and list prices of models that no backend has."""

    def listed(self, model: str) -> Price | None:
        """The list price of a model by its name alone; None if unknown."""
        ...


@dataclass(slots=True)
class BackendState:
    available: bool
    reason: str = ""
    in_flight: int = 0
    first_byte_ms: float | None = None
    """Moving average of the milliseconds to the first byte of a stream. None if this worker has seen no stream."""
    measured_s: float = 0.0
    """Seconds since the last measurement of `first_byte_ms`."""
    load: Load | None = None
    """The load of the backend's server. None if only the requests of this worker are known."""
    wait_s: float = 0.0
    """Estimated seconds for which a further request would wait at the backend for its turn."""
    trouble: str = ""
    """Why calls of the backend fail at present. Empty if they do not fail, or if there was no call yet."""
    headroom: float | None = None
    """Share that is left of the provider's rate limit with the least left. At 0, one more call would exceed the limit.
    None if unknown."""
    limited: bool = False
    """Whether the backend is paused, because it has answered that its rate limit is reached."""


class FleetView(Protocol):
    """The current health of the backends."""

    def state(self, backend: Backend) -> BackendState: ...


class SessionView(Protocol):
    """Estimates how much of a conversation each backend has in its prompt cache."""

    def warm_tokens(self, prefix: Prefix, backend: Backend, input_tokens: int) -> int:
        """The number of `input_tokens` that `backend` is expected to read from its cache."""
        ...

    def warmest(self, prefix: Prefix, input_tokens: int) -> int:
        """The highest number of `input_tokens` that any backend is expected to read from its cache."""
        ...


class Contexts(Protocol):
    def estimate(self, request: CompletionRequest) -> ContextEstimate: ...

    def plan_for(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None = None
    ) -> Awaitable[ContextPlan]:
        """The plan of what to send to `backend`. `prefix`: the conversation, if it is known. Raises ContextTooLong if
        the request does not fit even after trimming."""
        ...

    def learn(self, record: Record) -> None:
        """Store the size of the input that the backend reported for the conversation."""
        ...


class Hold(Protocol):
    """Money that is held for one request."""

    covers: float
    """A number of tokens. `grow` must be called before `Attempt.seen` exceeds it."""
    output_limit: int | None
    """Maximum output tokens that may be requested of the backend, because the held money pays for no more; None: no
    limit."""

    def left_nano(self) -> int | None:
        """The nano-dollars that the request may cost. None if no limit in dollars bounds it."""
        ...

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        """Hold additional money for a call of `backend`. Raises BudgetExhausted. `input_tokens`: input of the call,
        including `attached`. `marked`: whether the gateway marks the prompt for the backend's cache."""
        ...

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Hold more money if an answer in progress needs it. Raises BudgetExhausted. `output_tokens`: estimate from the
        delivered text. `seen`: maximum number of tokens that can have arrived."""
        ...

    def follow(self, attempt: Attempt) -> None:
        """Make `covers` and `grow` refer to `attempt`, whose answer the client gets. The call is needed if money is
        held for several attempts."""
        ...


Subject = Literal["end_user", "session"]
"""A kind of owner of budgets. A team has very many owners of such a kind, so budgets do not name single ones. The text
is also the name of a column of the ledger."""


@dataclass(frozen=True, slots=True)
class BudgetChecker:
    """Names the owner of a budget: an organisation, a team or a key. Empty fields are ignored."""

    organisation: str = ""
    team: str = ""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class SpentReader:
    """Spend in the units of budgets. Simulated attempts do not count. Attempts without a price count as 0 dollars;
    tokens of free attempts do not count."""

    pico: int = 0
    tokens: int = 0


class EndUsers(Protocol):
    """Replaces the names of end users by pseudonyms."""

    def note(self, body: dict[str, Any], record: Record, header: str = "") -> None:
        """Set `record.end_user` from the request's `body`, else from the name in its headers (`header`)."""
        ...


class Spending(Protocol):
    """Reads the actual spend, from which counters are rebuilt. Methods may raise an error if the ledger cannot
    be read."""

    def spent(self, payer: BudgetChecker, since: float, until: float) -> Awaitable[SpentReader]:
        """Spend by attempts of requests that began in `[since, until)` (Unix seconds; `until` may be infinite).
        Attempts in progress are left out. Attempts that a dead worker left open are included."""
        ...

    def spent_by_each(
        self, by: Subject, team: str, since: float, until: float, names: Collection[str]
    ) -> Awaitable[Mapping[str, SpentReader]]:
        """Like `spent`, for each of the `names` in one team. `by`: kind of the names (pseudonyms of end users, or
        session ids). Names without spend are omitted."""
        ...


class AttemptJournal(Protocol):
    """The ledger as callers of backends use it. It has one entry per attempt."""

    def open(self, attempt: Attempt, record: Record) -> None:
        """Record in the journal that `attempt` begins. The call may start only after this. Raises LedgerUnavailable."""
        ...

    def close(self, attempt: Attempt, record: Record) -> None:
        """Price the attempt (sets `cost_pico`, `price_source`) and record its end in the journal. Must be called only
        once."""
        ...

    def cached(self, record: Record, usage: Usage, saved_pico: int | None, outcome: Outcome = "ok") -> None:
        """Record in the journal an answer that costs this request nothing: a stored or shared one. `saved_pico`: the
        saved cost."""
        ...


class Archive(Protocol):
    """Finds requests in the ledger that are not in the memory of any worker."""

    async def find(self, request_id: str, team: str) -> dict[str, Any] | None:
        """A flight record as JSON values. It is shorter than the record of a recent request. None if this team has made
        no request with this id."""
        ...


class Sampler(Protocol):
    """The part of the package `learning` that lower layers need."""

    def holdout(self, request: CompletionRequest) -> bool:
        """Whether the reference must serve this request, for comparison (the holdout group)."""
        ...

    def offer(self, request: CompletionRequest, record: Record, answer: Answer) -> None:
        """Offer a served request for comparison, before its answer is closed. Fast; never raises. A full queue drops
        the request."""
        ...


class Evidence(Protocol):
    """Evidence about a backend from a team's own judged answers."""

    def adjust(self, team: str, backend: str) -> Learned:
        """What is known about a backend from a team's judged answers, read from memory. `NOTHING` if no answer of the
        backend has been judged."""
        ...


class ClassTrials(Protocol):
    """How far traffic classes are open for cheaper backends."""

    def find(self, key: TrialKey) -> ClassTrial | None:
        """The trial, read from memory. None if there is none, or if the stored trials cannot be read."""
        ...


class NoTrials:
    """Implements `ClassTrials` without any trial."""

    def find(self, key: TrialKey) -> ClassTrial | None:
        return None


class NoEvidence:
    """Implements `Evidence` without any evidence."""

    def adjust(self, team: str, backend: str) -> Learned:
        return NOTHING


@dataclass(frozen=True, slots=True)
class FreshAnswer:
    """An answer that was requested only to be compared with another answer. It is sent to no client."""

    completion: bytes
    """The plain body in the request's dialect."""
    cost_pico: int | None


class FreshAnswerSource(Protocol):
    """Requests answers for comparison. Their cost counts in the tenant's budget and in a separate cap."""

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> FreshAnswer | None:
        """A new answer to `request` from a backend; None if no budget allows it or no backend answers. The ledger
        records the call as `shadow`."""
        ...
