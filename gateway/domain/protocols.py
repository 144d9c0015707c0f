"""Interfaces between packages of the same layer, which do not import each other."""

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
        """The present time in Unix seconds."""
        ...

    def monotonic(self) -> float: ...


class Embedder(Protocol):
    """Converts a text to a vector of length 1 (float32, `dimensions` numbers). Call it in a thread, not on the event
    loop. Raises EmbedderUnavailable."""

    name: str
    dimensions: int
    max_tokens: int

    @property
    def ready(self) -> bool:
        """Whether the embedding model is loaded. Until then, requests are answered without vectors."""
        ...

    @property
    def failed(self) -> bool:
        """Whether the embedding model could not be loaded. Loading is not tried again."""
        ...

    def begin(self) -> None:
        """Start to load the model in the background. Further calls have no effect."""
        ...

    async def embed(self, text: str, owner: str = "") -> Any | None:
        """The vector of `text`, shape (dimensions,); None if the text is too long. `owner`: scope within which a cached
        vector may be used again."""
        ...


class TokenCounter(Protocol):
    def estimate(self, text: str) -> int:
        """Estimate the number of tokens of `text` from its length in bytes. This takes microseconds."""
        ...

    def count(self, text: str) -> int:
        """Count the tokens of `text` exactly, with the tokenizer of this family of models. If the text is long, call
        this in a thread.
        """
        ...

    def at_once(self, text: str) -> int:
        """The exact number of tokens if it can be counted quickly, otherwise an estimate. Use it on the event loop,
        where an exact count of a long text would take too long."""
        ...


class PriceList(Protocol):
    def price(self, backend: Backend) -> Price | None:
        """The price of the backend; None if it is unknown. An unknown price is never 0."""
        ...


class MarginalPrices(PriceList, Protocol):
    """Knows the prices of backends, and the backends whose calls are already paid."""

    def prepaid(self, backend: Backend) -> bool:
        """Return whether calls of `backend` are already paid by a commitment that is not used up."""
        ...


class ModelPrices(MarginalPrices, Protocol):
    """Knows the prices of backends, and the list prices of models that no backend has."""

    def listed(self, model: str) -> Price | None:
        """The list price of a model, found by its name alone; None if unknown."""
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
    """Shows the present health of the backends."""

    def state(self, backend: Backend) -> BackendState: ...


class SessionView(Protocol):
    """Estimates how much of a conversation is in each backend's prompt cache."""

    def warm_tokens(self, prefix: Prefix, backend: Backend, input_tokens: int) -> int:
        """The number of the `input_tokens` that `backend` will probably read from its cache."""
        ...

    def warmest(self, prefix: Prefix, input_tokens: int) -> int:
        """The number of the `input_tokens` that are probably cached, at the backend where this number is highest."""
        ...


class Contexts(Protocol):
    def estimate(self, request: CompletionRequest) -> ContextEstimate: ...

    def plan_for(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None = None
    ) -> Awaitable[ContextPlan]:
        """Plan which parts of the request are sent to `backend`. `prefix`: the conversation, if it is known. Raises
        ContextTooLong if the request does not fit even after trimming."""
        ...

    def learn(self, record: Record) -> None:
        """Store the input size that the backend reported for the conversation, in tokens."""
        ...


class Hold(Protocol):
    """The money that is held for one request until its cost is known."""

    covers: float
    """A number of tokens. `grow` must be called before `Attempt.seen` exceeds it."""
    output_limit: int | None
    """Maximum output tokens that may be requested of the backend, because the held money pays for no more; None: no
    limit."""

    def left_nano(self) -> int | None:
        """The nano-dollars that the request may cost; None if no limit in dollars applies."""
        ...

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        """Hold additional money for a call of `backend`. `input_tokens`: input of the call, including `attached`.
        `marked`: whether the gateway adds cache marks to the prompt. Raises BudgetExhausted."""
        ...

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Hold more money if an answer in progress needs it. `output_tokens`: estimate from the delivered text. `seen`:
        maximum number of tokens that may have arrived. Raises BudgetExhausted."""
        ...

    def follow(self, attempt: Attempt) -> None:
        """Apply `grow` and `covers` (number of tokens that the held money pays for) to `attempt`, whose answer the
        client gets. This is necessary if money is held for several attempts."""
        ...


Subject = Literal["end_user", "session"]
"""A kind of owner of budgets. A team has very many owners of such a kind, so budgets do not name single ones. The text
is also the name of a column of the ledger."""


@dataclass(frozen=True, slots=True)
class BudgetChecker:
    """Names the owner of a budget, whose spend is read: an organisation, a team or a key. Empty fields are ignored."""

    organisation: str = ""
    team: str = ""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class SpentReader:
    """The spend that was read from the ledger, in pico-dollars and in tokens. Simulated attempts do not count. An
    attempt without a price counts as 0 dollars. The tokens of free attempts do not count."""

    pico: int = 0
    tokens: int = 0


class EndUsers(Protocol):
    """Replaces the names of end users by pseudonyms."""

    def note(self, body: dict[str, Any], record: Record, header: str = "") -> None:
        """Set `record.end_user` to the pseudonym of the request's end user. The name is taken from the `body`; if the
        body has none, from the `header`."""
        ...


class Spending(Protocol):
    """Reads the actual spend from the ledger, to restore the counters of budgets. The methods may raise an error if the
    ledger cannot be read."""

    def spent(self, payer: BudgetChecker, since: float, until: float) -> Awaitable[SpentReader]:
        """The spend of requests that began in `[since, until)` (Unix seconds; `until` may be infinite). An attempt in
        progress counts only if its worker is dead.
        """
        ...

    def spent_by_each(
        self, by: Subject, team: str, since: float, until: float, names: Collection[str]
    ) -> Awaitable[Mapping[str, SpentReader]]:
        """The spend of each end user or session in `names`: name → spend. `by`: whether the names are pseudonyms of
        end users or session ids. Only requests of `team` that began in `[since, until)` (Unix seconds) count. Names
        without spend are omitted.
        """
        ...


class AttemptJournal(Protocol):
    """The ledger for code that calls backends. It gets one entry per attempt."""

    def open(self, attempt: Attempt, record: Record) -> None:
        """Write to the journal that `attempt` begins. The backend may be called only after this. Raises
        LedgerUnavailable."""
        ...

    def close(self, attempt: Attempt, record: Record) -> None:
        """Price the attempt (this sets `cost_pico`, `price_source`), and write its end to the journal. Call this only
        once."""
        ...

    def cached(self, record: Record, usage: Usage, saved_pico: int | None, outcome: Outcome = "ok") -> None:
        """Write to the journal an answer that costs this request nothing. The answer was stored, or is shared with
        another request. `saved_pico`: the saved cost in pico-dollars.
        """
        ...


class Archive(Protocol):
    """Finds requests in the ledger that are no longer in the memory of any worker."""

    async def find(self, request_id: str, team: str) -> dict[str, Any] | None:
        """Find the flight record of a request, as JSON values. It has fewer fields than that of a recent request. None
        if this team has made no request with this id."""
        ...


class Sampler(Protocol):
    """The interface of the package `learning` for lower layers."""

    def holdout(self, request: CompletionRequest) -> bool:
        """Return whether the reference must serve this request, so that other answers can be compared with its
        answers."""
        ...

    def offer(self, request: CompletionRequest, record: Record, answer: Answer) -> None:
        """Offer a served request for a comparison. Call this before the request's answer is closed. The call is fast
        and never raises. If the queue is full, the request is not compared.
        """
        ...


class Evidence(Protocol):
    """Knows how good a backend is, from a team's own judged answers."""

    def adjust(self, team: str, backend: str) -> Learned:
        """The evidence about a backend from a team's judged answers, read from memory. `NOTHING` if no answer of the
        backend was judged."""
        ...


class ClassTrials(Protocol):
    """Knows which share of each traffic class cheaper backends may serve."""

    def find(self, key: TrialKey) -> ClassTrial | None:
        """Find a trial in memory. None if there is none, or if the stored trials cannot be read."""
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
    """An answer that was requested only for a comparison with another answer. No client gets it."""

    completion: bytes
    """The plain body in the request's dialect."""
    cost_pico: int | None


class FreshAnswerSource(Protocol):
    """Requests answers for comparison. Their cost counts in the tenant's budget, and towards a separate limit."""

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> FreshAnswer | None:
        """Request a new answer to `request` from a backend. None if no budget allows it, or if no backend answers. The
        ledger records the call as `shadow`."""
        ...
