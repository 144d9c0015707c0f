"""Read this first: the steps of one request. `api/routes/inference.py` has found its tenant and parsed it before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Self

from gateway.admission.budgets import Budgets
from gateway.admission.counter_group import Groups
from gateway.admission.rate_limits import RateLimits
from gateway.admission.tool_loops import ToolLoops
from gateway.backends.fleet import Fleet
from gateway.cache.cache import Cache
from gateway.cache.result import Join, Miss
from gateway.context.strategies import experiments
from gateway.dialects.facts import FACTS
from gateway.domain.answer import Answer, Sink
from gateway.domain.backend import Backend
from gateway.domain.policy import EXPERIMENT_TAG
from gateway.domain.protocols import AttemptJournal, Contexts, EndUsers, Hold, Sampler, TokenCounter
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextEstimate, ContextPlan, Route
from gateway.domain.tenant import Tenant
from gateway.domain.traffic import traffic_class
from gateway.errors import DeadlineExceeded
from gateway.routing.router import Router
from gateway.runtime.deadlines import Deadlines
from gateway.runtime.off_loop import OffLoop
from gateway.settlement import (
    NOTHING,
    JoinedAnswer,
    Outcome,
    PaidAnswer,
    Settlement,
    StoredAnswer,
    Unpaid,
    close_quietly,
    run_steps,
)
from gateway.telemetry.observe import Telemetry

Answered = Callable[[CompletionRequest, Record, Answer], None]


class Pipeline:
    """Runs the steps of a request.

    Before the answer: check rate limits and budgets, look in the cache, grade and route the request, hold money, call
    a backend. At the end of the answer: price, journal and settle it, store it in the cache, emit telemetry.
    """

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
        loops: ToolLoops | None = None,
        off_loop: OffLoop | None = None,
        answered: Answered | None = None,
    ) -> None:
        """`answered`: function that is called with each answer to a team whose policy has `context.flagged_turns`."""
        self.limits, self.budgets, self.contexts = limits, budgets, contexts
        self.cache, self.router, self.fleet, self.books = cache, router, fleet, books
        self.telemetry = telemetry
        self.end_users = end_users
        self.loops = loops or ToolLoops()
        self.answered = answered
        self.deadlines = Deadlines()
        self.off_loop = off_loop or OffLoop()
        self.settlement = Settlement(books, counter, cache, router, contexts, sampler)

    async def serve(self, request: CompletionRequest, tenant: Tenant, record: Record, deadline: float) -> Reply:
        """Get the answer to `request`. `deadline`: loop time by which the whole answer must be complete.

        Raises a GatewayError before the first byte of the answer.
        """
        reply = Reply(self, record, deadline)  # closed here on failure, otherwise by the caller's `async with`
        try:
            if tenant.policy.experiments or record.tags:
                request = await self._varied(request, record)
            self.end_users.note(request.body, record, request.controls.end_user)
            if request.is_large:
                estimate = await self.off_loop.run(self.contexts.estimate, request)
            else:
                estimate = self.contexts.estimate(request)
            record.traffic_class = traffic_class(request, estimate.tokens)
            permit = await self.limits.admit(tenant, estimate.tokens, record)
            reply.outcome = Unpaid(permit)
            # checked before the cache is read, because cached answers need the same permission
            if tenant.access is not None:
                self.router.check(request.model, tenant)
            self.loops.check(request, record)
            groups = await self.budgets.refuse_exhausted(tenant, record.end_user, record.started_at, record.session)

            found = await self.cache.lookup(request, tenant, record, deadline)
            if isinstance(found, Miss):
                reply.outcome = paid = PaidAnswer(self.settlement, request, record, permit, found)
                buy = partial(self._buy, paid, estimate, groups, deadline)
                await self.cache.coalesce(found, request, deadline, paid, buy)
            elif isinstance(found, Join):
                reply.outcome = JoinedAnswer(self.settlement, record, permit, found)
            else:
                reply.outcome = StoredAnswer(self.settlement, record, permit, found)
            if tenant.policy.context.flagged_turns != "keep" and self.answered is not None:
                reply.answered = partial(self.answered, request, record)
            return reply
        except BaseException as error:
            await reply.__aexit__(type(error), error, error.__traceback__)
            raise

    async def _varied(self, request: CompletionRequest, record: Record) -> CompletionRequest:
        """Add the texts of the team's experiments to the request, and store the chosen variants on the record. Returns
        the changed request.
        """
        policy = record.tenant.policy
        for name in [name for name in record.tags if name.startswith(EXPERIMENT_TAG)]:
            del record.tags[name]  # the client cannot choose
        if not policy.experiments:
            return request
        found = experiments.assigned(request, record.tenant)
        record.tags.update({f"{EXPERIMENT_TAG}{name}": variant for name, variant in found.items()})
        texts = [text for name, variant in found.items() if (text := policy.experiments[name][variant])]
        return await self.off_loop.run(experiments.varied, request, "\n\n".join(texts)) if texts else request

    async def _buy(self, paid: PaidAnswer, estimate: ContextEstimate, groups: Groups, deadline: float) -> None:
        """Get an answer from a backend and store it in `paid`. Returns when the first bytes of the answer have
        arrived.
        """
        request, record = paid.request, paid.record
        route = await self.router.route(request, record.tenant, estimate, record)
        paid.hold = self.budgets.hold(record.tenant, record, request, groups)  # empty; each call extends it
        paid.answer = await self._call(route, request, record, paid.hold, deadline)

    async def route(self, request: CompletionRequest, record: Record) -> Route:
        """The route that a request would take now. Raises NoBackend, ContextTooLong."""
        return await self.router.route(request, record.tenant, self.contexts.estimate(request), record)

    async def ask(
        self,
        route: Route,
        request: CompletionRequest,
        record: Record,
        hold: Hold,
        deadline: float,
        plan_for: Callable[[Backend], Awaitable[ContextPlan]] | None = None,
    ) -> Answer:
        """Get an answer for the gateway's own use, without limits and cache.

        The answer is closed when the function returns. Its cost is then in `record.cost_pico`, and the caller
        settles `hold`. `deadline`: loop time. `plan_for`: makes the context plan; None: the plan is made as for a
        client's request. Raises GatewayError.
        """
        answer: Answer | None = None
        try:
            answer = await self._call(route, request, record, hold, deadline, plan_for)
            return answer
        finally:
            self.settlement.close(record, answer)
            if answer is not None:
                await answer.aclose()

    def _call(
        self,
        route: Route,
        request: CompletionRequest,
        record: Record,
        hold: Hold,
        deadline: float,
        plan_for: Callable[[Backend], Awaitable[ContextPlan]] | None = None,
    ) -> Awaitable[Answer]:
        return self.fleet.call(
            route,
            request,
            record,
            plan_for=plan_for or partial(self.contexts.plan_for, request, record.tenant, prefix=route.prefix),
            hold=hold,
            books=self.books,
            deadline=deadline,
        )


class Reply:
    """The answer to one request, together with its clean-up.

    Creating it starts the deadline and the telemetry of the request. Use it in `async with`: leaving the block ends
    both, closes the answer and settles its cost, also if the answer was never read.
    """

    outcome: Outcome = NOTHING
    answered: Callable[[Answer], None] | None = None
    last = b""
    """The latest piece that was passed on. It is kept only if the client's dialect needs it for an error event."""
    ending = b""
    """The last bytes of the answer, as in `PaidAnswer.ending`."""

    def __init__(self, pipeline: Pipeline, record: Record, deadline: float) -> None:
        self.record = record
        self._pipeline = pipeline
        self._deadline = pipeline.deadlines.at(deadline)
        self._deadline.__enter__()
        pipeline.telemetry.begin(record)

    @property
    def answer(self) -> Answer:
        answer = self.outcome.given
        assert answer is not None
        return answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the reply. Only the last step awaits, so a cancellation cannot interrupt the steps before it."""
        late = None
        try:
            self._deadline.__exit__(kind, error, trace)
        except TimeoutError:
            error = late = DeadlineExceeded(
                "The request's deadline passed before its answer was whole; allow more with x-thriftgate-deadline."
            )
        answer = self.outcome.given
        self.outcome.close(partial(self._pipeline.telemetry.end, self.record, error))
        if answer is not None:
            if self.answered is not None:
                run_steps(partial(self.answered, answer))
            await close_quietly(answer)
        if late is not None:
            raise late from None

    async def pipe_to(self, take: Sink) -> bool:
        """Pass the pieces of the answer to `take` as they arrive.

        Returns True if `take` accepts no more pieces now. Returns False if only the last piece, `ending`, is left.
        Raises the errors of the answer.
        """

        def keep_last(piece: bytes) -> bool:
            self.last = piece
            return take(piece)

        outcome = self.outcome
        source = outcome.source
        if await source.pipe_to(keep_last if FACTS[self.record.dialect].numbers_events else take):
            return True
        outcome.settle()
        self.ending = source.ending
        return False

    def whole(self) -> bytes:
        """Settle the cost, and return the whole body. Only for an answer that is not a stream."""
        self.outcome.settle()
        return self.answer.ending
