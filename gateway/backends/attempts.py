"""Retries and fallbacks: the order in which a request's backends are called until one begins to answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.backends.call import BackendCall, Written
from gateway.backends.cascade.stream_gate import StreamGate
from gateway.backends.failures import Failures
from gateway.backends.plausible import estimate
from gateway.backends.providers.base import Call
from gateway.backends.relay import Relayed, Whole
from gateway.backends.resilience.breaker import SHORT_PAUSE_S, Health
from gateway.backends.resilience.pauses import pause_after, pause_ended
from gateway.dialects.facts import FACTS
from gateway.dialects.requests.surcharges import surcharges
from gateway.domain.answer import delivered_tokens
from gateway.domain.backend import Backend
from gateway.domain.protocols import AttemptJournal, Clock, Hold
from gateway.domain.record import Attempt, Outcome, Record
from gateway.domain.request import CompletionRequest, most_asked
from gateway.domain.routing.route import ContextPlan
from gateway.errors import (
    BackendError,
    BackendRateLimited,
    BackendRefused,
    BackendTimeout,
    BadRequest,
    BudgetExhausted,
    DeadlineExceeded,
    GatewayError,
    LedgerUnavailable,
    LoopDetected,
    Overloaded,
    StreamBroken,
)
from gateway.runtime.off_loop import LARGE_BYTES, OffLoop

log = logging.getLogger(__name__)

_TIERED = frozenset(("service_tier", "speed", "inference_geo"))
"""Request fields that choose a service tier, the speed, or the region of the inference."""
_OF_ONE_BACKEND = (403, LoopDetected.status)
"""Status codes of refusals that another backend may not share."""
HEDGE = "hedge"
"""The `kind` of the cancelled attempt when two attempts ran in parallel and the other one began to answer first."""


@dataclass(slots=True)
class CallContext:
    """The data that all attempts of one request share."""

    request: CompletionRequest
    record: Record
    plan_for: Callable[[Backend], Awaitable[ContextPlan]]
    hold: Hold
    books: AttemptJournal
    deadline: float
    """Loop time in seconds at which the request must be finished."""
    turn: asyncio.Lock | None = None
    """None if the request makes one call at a time. If the request runs several calls in parallel, each task must hold
    this lock while it reserves more of the budget for the request (`hold`) and opens an attempt."""
    kind: str = ""
    """The value of `kind` that the ledger stores for the attempts closed from now on; empty for an ordinary attempt."""


@dataclass(slots=True)
class Totals:
    """Counters of this worker since its start."""

    attempts: int = 0
    failed: int = 0
    interrupted: int = 0
    escalated: int = 0
    retries: int = 0
    fallbacks: int = 0
    hedged: int = 0


class Attempts:
    """Calls backends in order. Opens each attempt in the journal before the call. If the attempt fails, closes it in
    the journal."""

    def __init__(self, exchanges: Mapping[str, BackendCall], clock: Clock, off_loop: OffLoop | None = None) -> None:
        self.totals = Totals()
        self._off_loop = off_loop or OffLoop()
        self._exchanges = exchanges
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        """The running event loop. It is stored for the usual path, because looking it up takes a system call."""

    async def first_of(
        self,
        backends: Sequence[Backend],
        call_context: CallContext,
        *,
        unsure: Backend | None = None,
        last_resort: bool = True,
    ) -> Relayed | Whole:
        """Call the backends in order and return the first answer that begins.

        `unsure`: the backend that is asked for log-probabilities; None: no backend. `last_resort`: whether to call
        rate-limited backends again after their pause, and all backends in spite of open circuit breakers if all are
        open.

        Raises BackendRefused if the request itself is refused, because other backends would refuse it too. If no
        backend could be called, raises BadRequest, ContextTooLong or BudgetExhausted. If all were busy, raises
        Overloaded. Also raises DeadlineExceeded, LedgerUnavailable and AllBackendsFailed.
        """
        errors = Failures()
        for backend in backends:
            answer = await self._with_retry(
                self._exchanges[backend.name], call_context, errors, backend is unsure, alone=len(backends) == 1
            )
            if answer is not None:
                if backend is not backends[0]:
                    self.totals.fallbacks += 1
                return answer
        if last_resort and errors.paused and (answer := await self._after_pauses(call_context, errors, unsure)):
            return answer
        # go on only if all backends were skipped, or the only one is in a pause (a failure without `asked`)
        if not last_resort or errors.asked or errors.misfits or errors.busy or (errors.failures and len(backends) > 1):
            raise errors.verdict()
        probed = Failures()
        for backend in backends:
            if answer := await self._with_retry(
                self._exchanges[backend.name], call_context, probed, backend is unsure, probes=True
            ):
                return answer
        raise (probed if probed.failures or probed.misfits or probed.busy else errors).verdict()

    async def _with_retry(
        self,
        backend_call: BackendCall,
        call_context: CallContext,
        errors: Failures,
        logprobs: bool,
        *,
        alone: bool = True,
        probes: bool = False,
    ) -> Relayed | Whole | None:
        """Call the backend. If the failure may be temporary, call the backend a second time.

        Returns None if the next backend should be called; the reason is then in `errors`. `logprobs`: whether to ask
        for log-probabilities. `alone`: whether the request has no other backend. `probes`: whether to call the backend
        although its circuit breaker is open or its pause has not ended.
        """
        before = len(call_context.record.attempts)
        for again in (False, True):
            try:
                answer = await self._attempt(backend_call, call_context, logprobs, probes)
                if answer is None:
                    errors.skipped += (backend_call.health,)
                return answer
            except (BadRequest, BudgetExhausted, Overloaded) as obstacle:
                call_context.record.note("backend skipped", backend=backend_call.backend.name, why=obstacle.code)
                if isinstance(obstacle, Overloaded):
                    errors.busy += (obstacle,)
                else:
                    errors.misfits += (obstacle,)
                return None
            except BackendRefused as refused:
                if refused.code != "context_length_exceeded" and refused.status not in _OF_ONE_BACKEND:
                    raise  # another backend has another window, and other rules for content, models and regions
                if again or not await self._shorter(backend_call.backend, call_context, refused):
                    errors.misfits += (refused,)
                    return None
            except BackendError as failure:
                errors.failures += (failure,)
                errors.asked = errors.asked or len(call_context.record.attempts) > before
                if isinstance(failure, BackendRateLimited):
                    self._on_limit(backend_call, failure, errors, alone)
                    return None
                if again or not await self._pause(backend_call, call_context, failure):
                    return None
                self.totals.retries += 1
        return None

    def _on_limit(self, backend_call: BackendCall, failure: BackendRateLimited, errors: Failures, alone: bool) -> None:
        """Handle a backend's answer with status 429. If the backend may be called again after a pause, note this in
        `errors`.

        If the answer names no duration, the pause is short. If the answer names no duration and the request has no
        other backend (`alone`), the backend is not called again.
        """
        if failure.retry_after_s is None:
            if alone or (failure.no_quota and backend_call.backend.facts.tells_cost):
                return
            backend_call.health.guess_pause()
        if failure.retryable and not failure.no_quota:
            errors.paused += (backend_call,)

    async def _after_pauses(
        self, call_context: CallContext, errors: Failures, unsure: Backend | None
    ) -> Relayed | Whole | None:
        """Call each rate-limited backend once more when its pause ends, the shortest pause first. Returns None if no
        pause ends soon, or if no backend answers. `unsure`: the backend that is asked for log-probabilities."""
        left = list(errors.paused)
        ends = asyncio.get_running_loop().time() + SHORT_PAUSE_S
        while (backend_call := await pause_ended(left, ends, call_context.deadline)) is not None:
            self.totals.retries += 1
            if answer := await self._with_retry(backend_call, call_context, errors, backend_call.backend is unsure):
                return answer
        return None

    async def _shorter(self, backend: Backend, call_context: CallContext, refused: BackendRefused) -> bool:
        """Whether the request can be sent to `backend` again with less context. `refused`: the error with which the
        backend refused the untrimmed request."""
        request, attempt = call_context.request, call_context.record.attempts[-1]
        if (
            refused.status in _OF_ONE_BACKEND
            or (attempt.trimmed_tokens and not attempt.frozen)
            or attempt.backend is not backend
        ):
            return False
        request.too_long_for |= {backend.name}
        try:
            plan = await call_context.plan_for(backend)
        except BadRequest:
            return False
        return plan.touched and not plan.frozen

    async def _pause(self, backend_call: BackendCall, call_context: CallContext, failure: BackendError) -> bool:
        """Wait before the same backend is called again. Returns False, without waiting, if a second call would not
        help."""
        pause_s = pause_after(failure)
        if pause_s is None or not backend_call.health.state().available:
            return False
        if asyncio.get_running_loop().time() + pause_s >= call_context.deadline:
            return False
        await asyncio.sleep(pause_s)
        return True

    async def _attempt(
        self, backend_call: BackendCall, call_context: CallContext, logprobs: bool, probes: bool
    ) -> Relayed | Whole | None:
        """Make one call. Returns None if the backend's circuit breaker is open and the call is no probe (`probes`)."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        left_s = call_context.deadline - loop.time()
        if left_s <= 0:
            raise _too_late()
        tenant, turn, request = call_context.record.tenant, call_context.turn, call_context.request
        slot = backend_call.health.try_enter(tenant.team)  # usually enough, and cheaper than `enter`
        if slot is None:
            slot = await backend_call.health.enter(
                left_s, tenant.team, batch=tenant.batch(request.controls), last_resort=probes
            )
        if slot is None:
            call_context.record.note("backend skipped", backend=backend_call.backend.name, why="resting")
            return None
        try:
            plan = await call_context.plan_for(backend_call.backend)
            if turn is not None:
                await turn.acquire()
            try:
                marked = plan.marks is not None and plan.marks.changes
                await call_context.hold.extend(backend_call.backend, plan.tokens_after, plan.attached, marked=marked)
                now, cap = loop.time(), call_context.hold.output_limit
                if len(request.raw) > LARGE_BYTES and backend_call.writes_long(request, plan):
                    written = await self._off_loop.run(backend_call.write, request, plan, now, logprobs, cap)
                    now = loop.time()
                else:
                    written = backend_call.write(request, plan, now, logprobs, cap)
                call, attempt = self._open(backend_call, call_context, plan, written, now)
            finally:
                if turn is not None:
                    turn.release()
            try:
                return await backend_call.ask(call, attempt, slot)
            except BaseException as end:
                self._close_unanswered(call_context, call, attempt, end)
                raise
        except BaseException:
            if call_context.kind == HEDGE:
                slot.lost_race()
            else:
                slot.left()
            raise

    def _open(
        self,
        backend_call: BackendCall,
        call_context: CallContext,
        plan: ContextPlan,
        written: Written,
        now: float,
    ) -> tuple[Call, Attempt]:
        """Build the call to send at loop time `now`, and open its attempt in the journal. Before this call, money
        must have been set aside for the attempt. Raises LedgerUnavailable."""
        request, record, hold = call_context.request, call_context.record, call_context.hold
        cap, call = hold.output_limit, backend_call.call(request, written, now, call_context.deadline)
        attempt = record.attempt(backend_call.backend)
        call.attempt_id, attempt.sent_bytes = attempt.id, len(call.body)
        call.record, call.hold = record, hold
        attempt.input_tokens, attempt.trimmed_tokens = plan.expected_tokens, plan.trimmed_tokens
        attempt.counted_tokens, attempt.marks, attempt.frozen = plan.counted_tokens, plan.marks, plan.frozen
        attempt.pace = backend_call.paces[request.stream]
        if not _TIERED.isdisjoint(request.body) and (wanted := surcharges(request, backend_call.kind.dialect)):
            attempt.service_tier = wanted.service_tier or ""
        if cap is not None:
            attempt.output_cap = cap
            record.note("output capped", backend=backend_call.backend.name, tokens=cap)
        attempt.policy_cap = request.output_cap
        asked = most_asked(request) if FACTS[request.dialect].opaque else request.max_output_tokens
        attempt.bound(asked, request.parallel, one_context=request.one_context)
        self.totals.attempts += 1
        try:
            call_context.books.open(attempt, record)
        except LedgerUnavailable as error:
            attempt.outcome, attempt.error = "failed", error.code  # no call was made, so there is no attempt to close
            raise
        return call, attempt

    def _close_unanswered(self, call_context: CallContext, call: Call, attempt: Attempt, end: BaseException) -> None:
        """Close, in the journal, an attempt that got no answer. `end`: the exception that ended the attempt.

        Raises DeadlineExceeded if the deadline of the request itself has passed.
        """
        if not isinstance(end, GatewayError):
            attempt.error = call_context.kind or type(end).__name__
            self._close_interrupted(call_context, attempt)
            return
        self._close_failed(call_context, attempt, end)
        if isinstance(end, BackendTimeout) and call.out_of_time:
            raise _too_late() from end

    def _close_failed(self, call_context: CallContext, attempt: Attempt, error: GatewayError) -> None:
        attempt.error = error.code
        call_context.record.note("attempt failed", backend=attempt.backend.name, code=error.code, status=attempt.status)
        if isinstance(error, BackendTimeout | StreamBroken):
            self._close_interrupted(call_context, attempt)
        else:
            # the call failed, but the backend reported usage for it
            if (reported := attempt.reported) is not None and reported.total:
                attempt.estimate_usage(attempt.chunks)
            self.totals.failed += 1
            self.close(call_context, attempt, "failed")

    def _close_interrupted(self, call_context: CallContext, attempt: Attempt) -> None:
        """Close an attempt that stopped midway. The backend has read the prompt and may charge for it."""
        attempt.estimate_usage(attempt.chunks)
        self.totals.interrupted += 1
        self.close(call_context, attempt, "interrupted")

    async def drop(
        self, call_context: CallContext, answer: Relayed | Whole | StreamGate, outcome: Outcome, why: str
    ) -> None:
        """Discard an answer that will not be served: bill what was received, then close its connection."""
        self.bill(call_context, answer, outcome, why)
        await answer.aclose()

    def bill(
        self, call_context: CallContext, answer: Relayed | Whole | StreamGate, outcome: Outcome, why: str = ""
    ) -> None:
        """Bill an answer that will not be served, and close the answer's attempt in the journal. The connection stays
        open; the caller must close it."""
        attempt = answer.attempt
        attempt.error = why or attempt.error
        if attempt.usage is None:
            attempt.estimate_usage(_delivered(answer))
        self.close(call_context, attempt, outcome)

    def health(self, backend: Backend) -> Health:
        """The health record of `backend`."""
        return self._exchanges[backend.name].health

    def close(self, call_context: CallContext, attempt: Attempt, outcome: Outcome) -> None:
        """Close an attempt whose answer is not served."""
        attempt.outcome = outcome
        attempt.kind = attempt.kind or call_context.kind
        if attempt.ended_at is None:
            attempt.ended_at = self._clock.time()
        try:
            call_context.books.close(attempt, call_context.record)
        # the next `open` raises this error to the client; the journal's replay closes this entry
        except LedgerUnavailable:
            log.exception("attempt %s could not be closed in the ledger", attempt.id)


def _delivered(answer: Relayed | Whole | StreamGate) -> int:
    """The estimated number of output tokens of an answer for which the backend reported no usage. Also stores the
    confidence of the answer in the attempt."""
    attempt = answer.attempt

    def characters() -> int:
        if attempt.confidence is None:
            attempt.confidence = answer.confidence
        return answer.delivered_characters()

    return delivered_tokens(attempt.chunks, characters, estimate)


def _too_late() -> DeadlineExceeded:
    return DeadlineExceeded("No answer began before the request's deadline; allow more time, or ask for less.")
