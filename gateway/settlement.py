"""Settles requests: records what each request cost and who pays. There is one class for each way in which a request can
end: without an answer, with an answer from the cache, with the answer to another request in progress, or with the
answer to a call of its own.

If the request makes a call, money is held before the call. When the answer ends, the request is settled and journalled,
and the answer is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, Self

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


NOT_CLOSED = "a request could not be closed in order"
LONGEST_FINISH = 64
"""Maximum characters of a finish reason that are stored. A provider may send any text."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The parts of the gateway that are needed to settle a paid answer."""

    books: AttemptJournal
    counter: TokenCounter
    cache: Cache
    router: Router
    contexts: Contexts
    sampler: Sampler | None = None

    def close(self, record: Record, answer: Answer | None) -> tuple[int, int]:
        """Price the answer and journal the attempt that gave it.

        Returns the cost in pico-dollars and the tokens of all attempts of the request.
        """
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
            text = answer.delivered_text()  # only the beginning of a long answer is kept
            return -(-self.counter.at_once(text) * characters // len(text))

        return delivered_tokens(chunks, answer.delivered_characters, count)


class Outcome(Protocol):
    """How a request is answered and settled. The module has one class for each way in which a request can end. A
    request is settled only once."""

    @property
    def given(self) -> Answer | None:
        """The answer to the request; None if the request was refused or its answer has not begun."""

    @property
    def source(self) -> Answer | PaidAnswer:
        """The object from which the bytes of the answer are read."""

    def settle(self) -> None:
        """Settle the cost of the answer. The caller does this before it sends the end of the answer, or at the
        latest when the request ends.
        """

    def close(self, end: Callable[[], None]) -> None:
        """Settle the cost, if that has not happened yet. Then release the request's part of the rate limits, and
        call `end`.

        While a background task works for the request, the release and the call of `end` wait for that task. Does
        not await.
        """


class Unpaid:
    """An outcome without cost: the request was refused, or another request pays or has paid for the answer."""

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
            run_steps(partial(self._permit.settle, 0))

    def close(self, end: Callable[[], None]) -> None:
        self.settle()
        if self._permit is not None:
            run_steps(self._permit.release)
        end()


NOTHING = Unpaid()
"""The outcome of a request that has not passed the rate limits."""


class StoredAnswer(Unpaid):
    """An answer from the cache. Its ledger row is written at once, because its cost (0) is already final."""

    def __init__(self, settlement: Settlement, record: Record, permit: Permit, hit: Hit) -> None:
        super().__init__(permit, hit.answer)
        settlement.books.cached(record, hit.usage, hit.saved_pico)
        record.cost_pico = 0


class JoinedAnswer(Unpaid):
    """The answer to an identical request in progress. The ledger row of that request has the cost; the row of this
    request has cost 0.
    """

    def __init__(self, settlement: Settlement, record: Record, permit: Permit, join: Join) -> None:
        super().__init__(permit, join.answer)
        self._books, self._record, self._join = settlement.books, record, join
        record.cost_pico = 0

    def settle(self) -> None:
        if not self.settled:
            super().settle()
            run_steps(self._book)

    def _book(self) -> None:
        record, paid, answer = self._record, self._join.call.paid, self._join.answer
        if paid.usage is None or not answer.over:
            self._books.cached(record, Usage(estimated=True), None, "interrupted")
            return
        record.saved_pico, record.finish = paid.cost_pico, answer.finish[:LONGEST_FINISH]
        self._books.cached(record, paid.usage, paid.cost_pico)


class PaidAnswer:
    """An answer that a backend gives to this request. Its cost must be settled. If other requests share the answer, it
    may continue after this request has ended.
    """

    answer: Answer | None = None
    published = False
    """Whether a separate task reads the answer, settles it and publishes it. The request then reads `subscriber`."""
    subscriber: Answer | None = None
    hold: RequestHold = NO_HOLD
    ending = b""
    """The last bytes of the answer: the event that ends it and what arrived together with this event. They are sent
    after everything else."""

    def __init__(
        self, settlement: Settlement, request: CompletionRequest, record: Record, permit: Permit, miss: Miss
    ) -> None:
        self._settlement, self.request, self.record = settlement, request, record
        self._permit, self._miss = permit, miss
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
        """Usage, cost and backend of the answer so far. The values are final after the settlement."""
        if self.answer is None or (attempt := self.answer.attempt) is None:
            return UNPAID
        return Paid(attempt.usage, attempt.cost_pico, attempt.backend.name, attempt.backend.model)

    def share_plain(self, shared: SharedCall, buy: Callable[[], Awaitable[None]]) -> Awaitable[None]:
        """Use `buy` to get an answer that is not a stream, and publish it to all subscribers of `shared`. The call
        continues if the client of this request disconnects.
        """
        self.record.others = shared.outlives
        self._after.append(shared.finish_call)
        return shared.run_call(self, buy)

    async def share_stream(self, buy: Callable[[], Awaitable[None]], shared: SharedCall) -> None:
        """Use `buy` to get a stream, and publish it to all subscribers of `shared`. This runs in a separate task."""
        async with self:
            await buy()
            await shared.publish(self)

    def close(self, end: Callable[[], None]) -> None:
        self.subscriber = None  # subscriber, call and this answer would keep each other in memory
        if self._closed:
            run_steps(self._permit.release, end)
            return
        self._after += (self._permit.release, end)
        if not self.published:
            self._close()

    def _close(self) -> None:
        """Settle, learn from the answer, store it and release the hold. The method does not await, so no cancellation
        can interrupt it."""
        if not self._settled:
            self._settle_once()
        settlement, record = self._settlement, self.record
        self._closed, record.others = True, None
        steps, self._after = self._after, []
        learn = partial(settlement.router.learn, record), partial(settlement.contexts.learn, record)
        run_steps(*learn, self._keep, self.hold.release, *steps)

    def _keep(self) -> None:
        """Store the answer in the cache and offer it for comparisons. An answer that a budget has cut short is not
        stored.
        """
        answer, settlement = self.answer, self._settlement
        if answer is None or self.record.curtailed:
            return
        settlement.cache.store(self._miss, answer, self.record)
        if settlement.sampler is not None:
            settlement.sampler.offer(self.request, self.record, answer)

    def settle(self) -> None:
        """Price, journal and settle the answer. If a separate task publishes the answer, that task settles it, and this
        method does nothing."""
        if not (self._settled or self.published):
            self._settle_once()

    def _settle_once(self) -> None:
        if self._settled:  # some callers have tested this, to save the call
            return
        self._settled = True
        settlement, record = self._settlement, self.record
        try:
            cost_pico, tokens = settlement.close(record, self.answer)
            self.hold.settle(cost_pico)
            self._permit.settle(tokens)
        except Exception:
            log.exception(NOT_CLOSED)

    async def pipe_to(self, take: Sink) -> bool:
        """Pass each piece of the answer to `take` once the held money covers the piece.

        Returns True if `take` accepts no more pieces now. Returns False if only the last piece, `ending`, is left.
        Raises BudgetExhausted and the errors of the answer.
        """
        answer = self.answer
        assert answer is not None
        if not answer.stream and answer.over:  # a complete plain answer has nothing before its ending
            self._settle_once()
            self.ending = answer.ending
            return False

        assert answer.attempt is not None
        if await HoldGate(answer, answer.attempt, self.hold, self.record).pipe_to(take, self._keep_last):
            return True
        self._settle_once()
        self.ending += answer.ending
        return False

    def _keep_last(self, piece: bytes) -> bool:
        self.ending += piece
        return True


def run_steps(*steps: Callable[[], object]) -> None:
    """Run `steps` in order. An error is only logged, so that it breaks neither a complete answer nor the steps
    after it.
    """
    for step in steps:
        try:
            step()
        except Exception:
            log.exception(NOT_CLOSED)


async def close_quietly(answer: Answer) -> None:
    """Close the connection from which the answer came. An error is only logged, because it does not change the
    answer.
    """
    try:
        await answer.aclose()
    except Exception:
        log.exception("an answer's connection could not be closed")
