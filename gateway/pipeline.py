"""The page to read first: what one request goes through, from the door to the books."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from gateway.admission.budget import Budgets, RequestHold
from gateway.admission.limits import Admitted, Limits
from gateway.backends.fleet import Fleet
from gateway.cache.lookup import Cache, Hit, Miss
from gateway.domain.answer import Answer, Take, pieces
from gateway.domain.deadlines import Deadlines
from gateway.domain.protocols import Books, Contexts, EndUsers, Sampler, TokenCounter
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.domain.usage import Usage
from gateway.errors import BudgetExhausted, DeadlineExceeded
from gateway.routing.choose import Router
from gateway.telemetry.observe import Telemetry

log = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 8
"""Longer chunks than this, on average, hold more than one token each (a token has about four)."""


class Pipeline:
    """Policy → limits → cache → grade and route → hold → call; then price, settle, journal, store, emit."""

    def __init__(
        self,
        *,
        limits: Limits,
        budgets: Budgets,
        contexts: Contexts,
        counter: TokenCounter,
        cache: Cache,
        router: Router,
        fleet: Fleet,
        books: Books,
        end_users: EndUsers,
        telemetry: Telemetry,
        sampler: Sampler | None = None,
    ) -> None:
        self.limits, self.budgets, self.contexts, self.counter = limits, budgets, contexts, counter
        self.cache, self.router, self.fleet, self.books = cache, router, fleet, books
        self.telemetry = telemetry
        self.end_users, self.sampler = end_users, sampler
        self.deadlines = Deadlines()

    async def serve(self, request: CompletionRequest, tenant: Tenant, record: Record, deadline: float) -> Reply:
        """Answer `request` before `deadline` (loop time), or raise a GatewayError before the first byte."""
        reply = Reply(self, record, deadline)  # its exits run here on failure, else when whoever has it leaves it
        try:
            self.end_users.note(request.body, record)
            estimate = self.contexts.estimate(request)
            reply.admitted = await self.limits.admit(tenant, estimate.tokens, record)
            await self.budgets.refuse_exhausted(tenant, record.end_user)

            found = await self.cache.lookup(request, tenant, record)
            if isinstance(found, Hit):
                self.books.cached(record, found.usage, found.saved_pico)
                record.cost_pico = 0
                reply.answer = found.answer
                return reply

            reply.request = request
            route = await self.router.route(request, tenant, estimate, record)
            reply.hold = self.budgets.hold(tenant, record, request)
            reply.answer = await self.fleet.call(
                route,
                request,
                record,
                plan_for=partial(self.contexts.plan_for, request, tenant),
                hold=reply.hold,
                books=self.books,
                deadline=deadline,
            )
            reply.miss = found
            return reply
        except BaseException as error:
            await reply.__aexit__(type(error), error, error.__traceback__)
            raise

    def close(self, record: Record, answer: Answer | None) -> tuple[int, int]:
        """Price the answer and write it down → what all attempts cost (pico-dollars) and took (tokens)."""
        if answer is not None and (attempt := answer.attempt) is not None:
            if attempt.usage is None:
                delivered = self._delivered(answer, attempt.chunks)
                attempt.usage = Usage(attempt.input_tokens, output_tokens=delivered, estimated=True)
            attempt.outcome = "ok" if answer.complete else "interrupted"
            record.finish = answer.finish
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
        """Tokens of an answer whose backend never said: most stream a token a chunk, the others' text is counted."""
        try:
            characters = answer.delivered_characters()
            if characters <= chunks * CHARACTERS_PER_TOKEN:
                return chunks
            text = answer.delivered_text()
            return -(-self.counter.at_once(text) * characters // len(text))  # of a long one only the beginning is here
        except Exception:  # text that cannot be read must not keep the attempt from being closed
            log.exception("what was delivered could not be read; its chunks are counted")
            return chunks


class Reply:
    """The answer and its exits: `async with` owns both, so that a reply never read still settles."""

    answer: Answer
    admitted: Admitted | None = None
    hold: RequestHold | None = None
    miss: Miss | None = None
    request: CompletionRequest | None = None
    """Where a backend was to answer it."""
    last = b""
    """The last piece that was handed on."""
    ending = b""
    """What is left to release when all is poured: the terminating event, and what arrived together with it."""

    def __init__(self, pipeline: Pipeline, record: Record, deadline: float) -> None:
        self.record = record
        self._pipeline = pipeline
        self._deadline = pipeline.deadlines.at(deadline)
        self._deadline.__enter__()
        self._settled = False
        pipeline.telemetry.begin(record)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Synchronous but for its last step, so that no cancellation can come between the others."""
        late = None
        try:
            self._deadline.__exit__(kind, error, trace)
        except TimeoutError:
            error = late = DeadlineExceeded(
                "The request's deadline passed before its answer was whole; allow more with x-thriftgate-deadline."
            )
        answer, pipeline, record = getattr(self, "answer", None), self._pipeline, self.record
        self.settle()
        if answer is not None and self.miss is not None:
            quietly(pipeline.cache.store, self.miss, answer, record)
        if answer is not None and self.request is not None and pipeline.sampler is not None:
            quietly(pipeline.sampler.offer, self.request, record, answer)
        if self.hold is not None:
            quietly(self.hold.release)
        if self.admitted is not None:
            quietly(self.admitted.leave)
        pipeline.telemetry.end(record, error)
        if answer is not None:
            await let_go(answer)
        if late is not None:
            raise late from None

    def settle(self) -> None:
        """Price → journal → settle, the first time that it is called: before the end is released, else at the exits."""
        if self._settled or self.admitted is None:
            return
        self._settled = True
        quietly(self._settle, getattr(self, "answer", None), self.admitted)

    def _settle(self, answer: Answer | None, admitted: Admitted) -> None:
        if self.hold is None:  # no backend was asked
            admitted.settle(0)
            return
        cost_pico, tokens = self._pipeline.close(self.record, answer)
        self.hold.settle(cost_pico)
        admitted.settle(tokens)
        self._pipeline.router.learn(self.record)

    async def pour(self, take: Take) -> bool:
        """Hand `take` the answer as it comes, until it wants no more now (returns True) or all but `ending` is said.

        No piece is handed on before what is held covers it, and `ending` is known once the money is settled and
        journalled. Raises BudgetExhausted and what the answer raises.
        """
        answer, hold, attempt = self.answer, self.hold, self.answer.attempt
        kept = b""

        def hand_on(piece: bytes) -> bool:
            if answer.over:
                self.ending += piece
                return True
            self.last = piece
            return take(piece)

        def covered(piece: bytes) -> bool:
            nonlocal kept
            if hold is not None and attempt is not None and attempt.chunks > hold.covers:
                kept = piece
                return False
            return hand_on(piece)

        while await answer.pour(covered):
            if not kept:
                return True
            assert hold is not None
            assert attempt is not None
            piece, kept = kept, b""
            try:
                await hold.grow(attempt.chunks)
            except BudgetExhausted as spent:
                if not spent.truncates:
                    raise
                if not answer.over:  # else all of it was delivered before anybody could say stop
                    if not await self._truncate(answer, attempt, spent):
                        raise
                    hand_on(piece)
                    break
            if not hand_on(piece):
                return True
        self.settle()
        self.ending += answer.ending
        return False

    async def _truncate(self, answer: Answer, attempt: Attempt, spent: BudgetExhausted) -> bool:
        """End the answer here, as one that has reached its length; False where its kind cannot be ended so."""
        delivered = attempt.chunks
        if not await answer.cut(Usage(attempt.input_tokens, output_tokens=delivered, estimated=True)):
            return False
        attempt.error = spent.code
        self.record.note("truncated", tokens=delivered, why=spent.message)
        return True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """All bytes of the answer, `ending` last."""
        async for piece in pieces(self.pour):
            yield piece
        yield self.ending

    def whole(self) -> bytes:
        """All of an answer that is no stream."""
        self.settle()
        return self.answer.ending


def quietly(step: Callable[..., object], *what: Any) -> None:
    """An error at a request's end is logged: it must break neither an answer that is whole nor the steps after it."""
    try:
        step(*what)
    except Exception:
        log.exception("a request could not be closed in order")


async def let_go(answer: Answer) -> None:
    """Close the backend's connection; what goes wrong then is no concern of whoever has the answer."""
    try:
        await answer.aclose()
    except Exception:
        log.exception("an answer's connection could not be closed")
