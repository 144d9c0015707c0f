"""The page to read first: what one request goes through, from the door to the books."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from types import TracebackType
from typing import Self

from gateway.admission.budgets import Budgets
from gateway.admission.rate_limits import Permit, RateLimits
from gateway.backends.fleet import Fleet
from gateway.cache.cache import Cache
from gateway.cache.result import Hit, Join
from gateway.domain.answer import Answer, Sink, pieces
from gateway.domain.money.usage import Usage
from gateway.domain.protocols import AttemptJournal, Contexts, EndUsers, Sampler, TokenCounter
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextEstimate
from gateway.domain.tenant import Tenant
from gateway.errors import DeadlineExceeded
from gateway.routing.router import Router
from gateway.runtime.deadlines import Deadlines
from gateway.runtime.off_loop import LARGE_BYTES, OffLoop
from gateway.settlement import LONGEST_FINISH, PaidAnswer, Settlement, close_quietly, log_errors
from gateway.telemetry.observe import Telemetry


class Pipeline:
    """Policy → limits → cache → grade and route → hold → call; then price, settle, journal, store, emit."""

    def __init__(
        self,
        *,
        limits: RateLimits,
        budgets: Budgets,
        contexts: Contexts,
        counter: TokenCounter,
        cache: Cache,
        router: Router,
        fleet: Fleet,
        books: AttemptJournal,
        end_users: EndUsers,
        telemetry: Telemetry,
        sampler: Sampler | None = None,
        off_loop: OffLoop | None = None,
    ) -> None:
        self.limits, self.budgets, self.contexts = limits, budgets, contexts
        self.cache, self.router, self.fleet, self.books = cache, router, fleet, books
        self.telemetry = telemetry
        self.end_users = end_users
        self.deadlines = Deadlines()
        self.off_loop = off_loop or OffLoop()
        self.settlement = Settlement(books, counter, cache, router, sampler)

    async def serve(self, request: CompletionRequest, tenant: Tenant, record: Record, deadline: float) -> Reply:
        """Answer `request` before `deadline` (loop time), or raise a GatewayError before the first byte."""
        reply = Reply(self, record, deadline)  # its exits run here on failure, else when whoever has it leaves it
        try:
            self.end_users.note(request.body, record)
            if len(request.raw) > LARGE_BYTES:
                estimate = await self.off_loop.run(self.contexts.estimate, request)
            else:
                estimate = self.contexts.estimate(request)
            reply.permit = await self.limits.admit(tenant, estimate.tokens, record)
            if tenant.access is not None:  # before the cache: an answer is no more open than the model that gave it
                self.router.check(request.model, tenant)
            await self.budgets.refuse_exhausted(tenant, record.end_user, record.started_at)

            found = await self.cache.lookup(request, tenant, record, deadline)
            if isinstance(found, Hit):
                self.books.cached(record, found.usage, found.saved_pico)
                record.cost_pico = 0
                reply.answer = found.answer
            elif isinstance(found, Join):
                reply.join = found
                record.cost_pico = 0
                reply.answer = found.answer
            else:
                reply.purchase = purchase = PaidAnswer(self.settlement, request, record, reply.permit, found)
                buy = partial(self._buy, purchase, request, record, estimate, deadline)
                if found.shared and request.stream:
                    reply.shared = True
                    reply.answer = await self.cache.start_call(found, request, deadline, partial(purchase.share, buy))
                else:
                    if found.shared:
                        await purchase.start_call(self.cache.announce(found, request, deadline), buy)
                    else:
                        await buy()
                    reply.answer = purchase.answer
            return reply
        except BaseException as error:
            await reply.__aexit__(type(error), error, error.__traceback__)
            raise

    async def _buy(
        self,
        purchase: PaidAnswer,
        request: CompletionRequest,
        record: Record,
        estimate: ContextEstimate,
        deadline: float,
    ) -> None:
        """Have the answer of a backend, its first bytes in hand."""
        tenant = record.tenant
        route = await self.router.route(request, tenant, estimate, record)
        purchase.hold = self.budgets.hold(tenant, record, request)
        purchase.answer = await self.fleet.call(
            route,
            request,
            record,
            plan_for=partial(self.contexts.plan_for, request, tenant),
            hold=purchase.hold,
            books=self.books,
            deadline=deadline,
        )


class Reply:
    """The answer and its exits: `async with` owns both, so that a reply never read still settles."""

    answer: Answer
    permit: Permit | None = None
    purchase: PaidAnswer | None = None
    """What this request pays for."""
    shared = False
    """The purchase is brought by a flight, for others too; else by this reply."""
    join: Join | None = None
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
        if not self._settled:
            self.settle()
        if self.purchase is None:
            self._leave(error)
        else:
            if not self.shared:
                self.purchase.close()
            self.purchase.afterwards(partial(self._leave, error))
        if (answer := getattr(self, "answer", None)) is not None:
            await close_quietly(answer)
        if late is not None:
            raise late from None

    def _leave(self, error: BaseException | None) -> None:
        """A purchase that goes on for others is this request's until it ends."""
        if self.permit is not None:
            log_errors(self.permit.leave)
        self._pipeline.telemetry.end(self.record, error)

    def settle(self) -> None:
        """The money, the first time that it is called: before the end is released, else at the exits."""
        if self._settled or self.permit is None:
            return
        self._settled = True
        if self.purchase is None:
            log_errors(self.permit.settle, 0)
        elif not self.shared:
            self.purchase.settle()
        if self.join is not None:
            log_errors(self._joined, self.join)

    def _joined(self, join: Join) -> None:
        """A row of its own that cost nothing: somebody else's pays for the answer."""
        record, paid = self.record, join.flight.paid
        if paid.usage is None or not join.answer.over:
            self._pipeline.books.cached(record, Usage(estimated=True), None, "interrupted")
            return
        record.saved_pico, record.finish = paid.cost_pico, join.answer.finish[:LONGEST_FINISH]
        self._pipeline.books.cached(record, paid.usage, paid.cost_pico)

    async def pipe_to(self, take: Sink) -> bool:
        """Hand `take` the answer as it comes, until it wants no more now (returns True) or all but `ending` is said.

        `ending` is known once the money is settled and journalled. Raises what the answer raises.
        """

        def hand_on(piece: bytes) -> bool:
            self.last = piece
            return take(piece)

        source = self.answer if self.purchase is None or self.shared else self.purchase
        if await source.pipe_to(hand_on):
            return True
        self.settle()
        self.ending = source.ending
        return False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """All bytes of the answer, `ending` last."""
        async for piece in pieces(self.pipe_to):
            yield piece
        yield self.ending

    def whole(self) -> bytes:
        """All of an answer that is no stream."""
        self.settle()
        return self.answer.ending
