"""Settles a request by what answered it: nothing, the cache, another request's call, or a call of its own.

A call of its own sets money aside, pays as the answer comes, and is settled, journalled and kept at its end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from gateway.admission.hold_gate import HoldGate
from gateway.admission.no_hold import NO_HOLD, RequestHold
from gateway.admission.rate_limits import Permit
from gateway.cache.cache import Cache
from gateway.cache.coalescing.shared_call import SharedCall
from gateway.cache.coalescing.source import UNPAID, Paid
from gateway.cache.result import Hit, Join, Miss
from gateway.domain.answer import Answer, Sink, delivered_tokens
from gateway.domain.money.usage import Usage
from gateway.domain.protocols import AttemptJournal, Contexts, Sampler, TokenCounter
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.routing.router import Router

log = logging.getLogger(__name__)


LONGEST_FINISH = 64
"""Characters; a provider may give any reason."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The packages that take part in settling a paid answer."""

    books: AttemptJournal
    counter: TokenCounter
    cache: Cache
    router: Router
    contexts: Contexts
    sampler: Sampler | None = None

    def close(self, record: Record, answer: Answer | None) -> tuple[int, int]:
        """Price the answer and write it down → what all attempts cost (pico-dollars) and took (tokens)."""
        if answer is not None and (attempt := answer.attempt) is not None:
            if attempt.usage is None:
                attempt.estimate_usage(self._delivered(answer, attempt.chunks))
            attempt.outcome = "ok" if answer.complete else "interrupted"
            record.finish = answer.finish[:LONGEST_FINISH]
            self.books.close(attempt, record)
        cost, tokens = None, 0
        for attempt in record.attempts:
            if attempt.cost_pico is not None:
                cost = (cost or 0) + attempt.cost_pico
            if attempt.usage is not None:
                tokens += attempt.usage.total
        record.cost_pico = cost
        return cost or 0, tokens

    def _delivered(self, answer: Answer, chunks: int) -> int:
        def count(characters: int) -> int:
            text = answer.delivered_text()  # of a long one only the beginning is here
            return -(-self.counter.at_once(text) * characters // len(text))

        return delivered_tokens(chunks, answer.delivered_characters, count)


class Outcome(Protocol):
    """What a request comes to: where its bytes are read from, and its settlement, which happens once."""

    @property
    def given(self) -> Answer | None:
        """The answer that the caller gets; None: refused, or not begun."""

    @property
    def source(self) -> Answer | PaidAnswer:
        """Where its bytes are read from."""

    def settle(self) -> None:
        """Settle the money: before the answer's end is released, else when the request is left."""

    def close(self, leave: Callable[[], None]) -> None:
        """Settle if that has not been done, then `leave` once nothing of it is in progress any more. Synchronous."""


class Unpaid:
    """Costs nothing: the request was refused, or answered by something that was paid already."""

    settled = False

    def __init__(self, permit: Permit | None = None, answer: Answer | None = None) -> None:
        self._permit, self.given = permit, answer

    @property
    def source(self) -> Answer:
        assert self.given is not None
        return self.given

    def settle(self) -> None:
        if not self.settled and self._permit is not None:
            self.settled = True
            log_errors(self._permit.settle, 0)

    def close(self, leave: Callable[[], None]) -> None:
        self.settle()
        leave()


NOTHING = Unpaid()
"""Of a request that was not admitted."""


class StoredAnswer(Unpaid):
    """A cache hit: booked at once, as a row without cost."""

    def __init__(self, settlement: Settlement, record: Record, permit: Permit, hit: Hit) -> None:
        super().__init__(permit, hit.answer)
        settlement.books.cached(record, hit.usage, hit.saved_pico)
        record.cost_pico = 0


class JoinedAnswer(Unpaid):
    """The answer to an identical request in progress. That request's ledger row has the cost; this one's row costs
    nothing."""

    def __init__(self, settlement: Settlement, record: Record, permit: Permit, join: Join) -> None:
        super().__init__(permit, join.answer)
        self._books, self._record, self._join = settlement.books, record, join
        record.cost_pico = 0

    def settle(self) -> None:
        if not self.settled:
            super().settle()
            log_errors(self._book)

    def _book(self) -> None:
        record, paid, answer = self._record, self._join.call.paid, self._join.answer
        if paid.usage is None or not answer.over:
            self._books.cached(record, Usage(estimated=True), None, "interrupted")
            return
        record.saved_pico, record.finish = paid.cost_pico, answer.finish[:LONGEST_FINISH]
        self._books.cached(record, paid.usage, paid.cost_pico)


class PaidAnswer:
    """An answer that a backend is paid for. It may outlive the request that pays, while others still want it."""

    answer: Answer | None = None
    published = False
    """A task of its own reads and settles it; the caller reads `subscriber`."""
    subscriber: Answer | None = None
    hold: RequestHold = NO_HOLD
    ending = b""
    """What is left to release when all is poured: the terminating event, and what arrived together with it."""

    def __init__(
        self, settlement: Settlement, request: CompletionRequest, record: Record, permit: Permit, miss: Miss
    ) -> None:
        self._settlement, self._request, self._record, self._permit, self._miss = (
            settlement,
            request,
            record,
            permit,
            miss,
        )
        self._settled = self._closed = False
        self._after: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if self.answer is not None:
            await close_quietly(self.answer)

    @property
    def given(self) -> Answer | None:
        return self.subscriber if self.published else self.answer

    @property
    def source(self) -> Answer | PaidAnswer:
        return self.subscriber or self

    @property
    def paid(self) -> Paid:
        """Exact when it is settled."""
        if self.answer is None or (attempt := self.answer.attempt) is None:
            return UNPAID
        return Paid(attempt.usage, attempt.cost_pico, attempt.backend.name, attempt.backend.model)

    async def share_plain(self, shared: SharedCall, buy: Callable[[], Awaitable[None]]) -> None:
        """`buy` a plain answer for all subscribers of `shared`, also when our own client leaves meanwhile."""
        self._record.others = shared.outlives
        self._after.append(shared.finish_call)
        await shared.run_call(self, buy)

    async def share_stream(self, buy: Callable[[], Awaitable[None]], shared: SharedCall) -> None:
        """`buy` a stream and publish it to all subscribers of `shared`; runs in a task of its own."""
        async with self:
            await buy()
            await shared.publish(self)

    def close(self, leave: Callable[[], None]) -> None:
        if not self.published:
            self._close()
        if self._closed:
            leave()
        else:
            self._after.append(leave)

    def _close(self) -> None:
        """Settle, keep the answer, release what is held. Synchronous, so that no cancellation comes in between."""
        if not self._settled:
            self._settle_once()
        if self.answer is not None:
            log_errors(self._keep, self.answer)
        log_errors(self.hold.release)
        self._closed = True
        self._record.others = None
        if after := self._after:
            self._after = []
            for step in after:
                log_errors(step)

    def _keep(self, answer: Answer) -> None:
        """Store the answer in the cache and offer it for comparison, unless the budget cut it short."""
        settlement = self._settlement
        if self._record.curtailed:
            return
        settlement.cache.store(self._miss, answer, self._record)
        if settlement.sampler is not None:
            settlement.sampler.offer(self._request, self._record, answer)

    def settle(self) -> None:
        """Price → journal → settle, unless the task that publishes the answer does."""
        if not self.published:
            self._settle_once()

    def _settle_once(self) -> None:
        if not self._settled:
            self._settled = True
            log_errors(self._settle, self.answer)

    def _settle(self, answer: Answer | None) -> None:
        cost_pico, tokens = self._settlement.close(self._record, answer)
        self.hold.settle(cost_pico)
        self._permit.settle(tokens)
        self._settlement.router.learn(self._record)
        self._settlement.contexts.learn(self._record)

    async def pipe_to(self, take: Sink) -> bool:
        """Hand `take` the answer as it comes, until it wants no more now (returns True) or all but `ending` is said.

        No piece is handed on before what is held covers it, and `ending` is known once the money is settled and
        journalled. Raises BudgetExhausted and what the answer raises.
        """
        answer = self.answer
        assert answer is not None
        if not answer.stream and answer.over:  # nothing comes before its ending
            self._settle_once()
            self.ending = answer.ending
            return False

        def hand_on(piece: bytes) -> bool:
            if answer.over:
                self.ending += piece
                return True
            return take(piece)

        assert answer.attempt is not None
        if await HoldGate(answer, answer.attempt, self.hold, self._record).pipe_to(hand_on):
            return True
        self._settle_once()
        self.ending += answer.ending
        return False


def log_errors(step: Callable[..., object], *what: Any) -> None:
    """An error at a request's end is logged: it must break neither an answer that is whole nor the steps after it."""
    try:
        step(*what)
    except Exception:
        log.exception("a request could not be closed in order")


async def close_quietly(answer: Answer) -> None:
    """Close the backend's connection. An error is logged, since the answer does not depend on it."""
    try:
        await answer.aclose()
    except Exception:
        log.exception("an answer's connection could not be closed")
