"""The page to read first: what one request goes through, from the door to the books."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

from gateway.admission.budget import BudgetHold, Budgets
from gateway.admission.limits import Admitted, Limits
from gateway.backends.fleet import Fleet
from gateway.cache.lookup import Cache, Hit
from gateway.domain.answer import Answer
from gateway.domain.protocols import Books, Contexts, TokenCounter
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tasks import Tasks
from gateway.domain.tenant import Tenant
from gateway.domain.usage import Usage
from gateway.errors import DeadlineExceeded
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
        telemetry: Telemetry,
    ) -> None:
        self.limits, self.budgets, self.contexts, self.counter = limits, budgets, contexts, counter
        self.cache, self.router, self.fleet, self.books = cache, router, fleet, books
        self.telemetry = telemetry
        self._stores = Tasks()

    async def serve(self, request: CompletionRequest, tenant: Tenant, record: Record, deadline: float) -> Reply:
        """Answer `request` before `deadline` (loop time), or raise a GatewayError before the first byte."""
        async with AsyncExitStack() as exits:  # unwinds last-in first-out, here on failure, else when the reply closes
            exits.enter_context(self.telemetry.observe(record))
            await exits.enter_async_context(until(deadline))
            estimate = self.contexts.estimate(request)
            admitted = exits.enter_context(await self.limits.admit(tenant, estimate.tokens, record))
            await self.budgets.refuse_exhausted(tenant)

            found = await self.cache.lookup(request, tenant, record)
            if isinstance(found, Hit):
                self.books.cached(record, found.usage, found.saved_pico)
                record.cost_pico = 0
                admitted.settle(0)
                return Reply(found.answer, record, None, lambda: None, exits.pop_all())

            route = await self.router.route(request, tenant, estimate, record)
            hold = await exits.enter_async_context(self.budgets.hold(tenant, record, request))
            close = Once(partial(self._close, record, hold, admitted))
            exits.callback(close)
            answer = await self.fleet.call(
                route,
                request,
                record,
                plan_for=partial(self.contexts.plan_for, request, tenant),
                hold=hold,
                books=self.books,
                deadline=deadline,
            )
            close.answer = answer
            exits.push_async_callback(let_go, answer)  # may take a moment, so it comes last
            exits.callback(lambda: self._stores.spawn(self.cache.store(found, answer, record), "cache store"))
            exits.callback(close)
            return Reply(answer, record, hold, close, exits.pop_all())

    def _close(self, record: Record, hold: BudgetHold, admitted: Admitted, answer: Answer | None) -> None:
        """Price → settle → journal. Synchronous, so that nothing can come between."""
        if answer is not None and (attempt := answer.attempt) is not None:
            if attempt.usage is None:
                delivered = self._delivered(answer.delivered_text(), attempt.chunks)
                attempt.usage = Usage(attempt.input_tokens, output_tokens=delivered, estimated=True)
            attempt.outcome = "ok" if answer.complete else "interrupted"
            record.finish = answer.finish
            self.books.close(attempt, record)
        spent = [attempt.cost_pico for attempt in record.attempts if attempt.cost_pico is not None]
        record.cost_pico = sum(spent) if spent else None
        hold.settle(sum(spent))
        admitted.settle(sum(attempt.usage.total for attempt in record.attempts if attempt.usage is not None))
        self.router.learn(record)

    def _delivered(self, text: str, chunks: int) -> int:
        """Tokens of an answer whose backend never said: most stream a token a chunk, the others' text is counted."""
        return chunks if len(text) <= chunks * CHARACTERS_PER_TOKEN else self.counter.at_once(text)

    async def aclose(self) -> None:
        await self._stores.drain(timeout_s=2.0)
        await self._stores.aclose()


@asynccontextmanager
async def until(deadline: float) -> AsyncIterator[None]:
    """Cut short what is still waiting at `deadline` (loop time). Raises DeadlineExceeded."""
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        raise DeadlineExceeded(
            "The request's deadline passed before its answer was whole; allow more with x-thriftgate-deadline."
        ) from None


async def let_go(answer: Answer) -> None:
    """Close the backend's connection; what goes wrong then is no concern of whoever has the answer."""
    try:
        await answer.aclose()
    except Exception:
        log.exception("an answer's connection could not be closed")


class Once:
    """Calls `close` with the answer the first time only: the reply calls it early, the exits make sure.

    An error in it is logged: it must not break an answer that is whole.
    """

    def __init__(self, close: Callable[[Answer | None], None]) -> None:
        self._close: Callable[[Answer | None], None] | None = close
        self.answer: Answer | None = None

    def __call__(self) -> None:
        close, self._close = self._close, None
        if close is None:
            return
        try:
            close(self.answer)
        except Exception:
            log.exception("a request could not be closed in order")


class Reply:
    """The answer and its exits: `async with` owns both, so that a reply never read still settles."""

    def __init__(
        self, answer: Answer, record: Record, hold: BudgetHold | None, close: Callable[[], None], exits: AsyncExitStack
    ) -> None:
        self.answer, self.record = answer, record
        self._hold, self._close, self._exits = hold, close, exits

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exits.__aexit__(kind, error, trace)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """All bytes of the answer; the money is settled and journalled before the terminating event is released."""
        hold, attempt = self._hold, self.answer.attempt
        async for piece in self.answer:
            if hold is not None and attempt is not None and attempt.chunks > hold.covers:
                await hold.grow(attempt.chunks)
            yield piece
        self._close()
        yield self.answer.ending
