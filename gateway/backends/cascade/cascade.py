"""Runs a strategy: calls backends in the strategy's order, passes their answers to the strategy, and serves the answer
that the strategy selects."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import replace

from gateway.backends.attempts import Attempts, CallContext
from gateway.backends.cascade.stream_gate import StreamGate
from gateway.backends.cascade.weak_signals import Reader
from gateway.backends.failures import together
from gateway.backends.relay import Relayed, Whole
from gateway.dialects.openai_chat import logprobs
from gateway.domain.backend import Backend
from gateway.domain.routing.route import Route
from gateway.domain.routing.strategy import FAILED, RunningStrategy, StrategyAnswer
from gateway.errors import (
    BackendRefused,
    BudgetExhausted,
    DeadlineExceeded,
    GatewayError,
    LedgerUnavailable,
)

log = logging.getLogger(__name__)

Served = Relayed | Whole | StreamGate
Obstacle = GatewayError | TimeoutError
"""Errors after which no further backend is called. A TimeoutError means that the stream must not be held back any
longer."""

_LEAST_S = 0.25
"""Seconds of margin before a further backend is called: the time left must exceed the usual answer time of this backend
by more than the margin."""
_SPARE, _MOST_SPARE_S = 0.1, 1.0
"""Time reserved for serving the best answer so far: first the share of the remaining time, then the maximum in seconds.
"""
_FINAL = (BudgetExhausted, DeadlineExceeded, LedgerUnavailable)
"""Errors after which the other backends cannot be called either."""


class _Guarded:
    """Wraps another `RunningStrategy` and logs its exceptions, so that they do not fail a request."""

    __slots__ = ("_strategy",)

    def __init__(self, asking: RunningStrategy) -> None:
        self._strategy = asking

    def next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        try:
            return self._strategy.next(answers)
        except Exception:
            log.exception("a strategy failed to choose the next backend; an answer so far is served")
            return ()

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        try:
            return self._strategy.serves(answers)
        except Exception:
            log.exception("a strategy failed to choose an answer; the last one is served")
            return len(answers) - 1


class Cascade:
    """Runs the strategy for one request. Each attempt stays open in the journal until an answer is selected.

    A stream that must be judged is held back: either its beginning, or all of it. If the judging takes too long,
    the stream of the reference backend is sent at once. The reference backend is `route.reference`, or the last
    backend of the route.
    """

    def __init__(self, attempts: Attempts, asking: RunningStrategy, route: Route, call_context: CallContext) -> None:
        """`asking`: the strategy to run. An answer counts as weak if its mean token probability is below
        `route.escalate_below`. If this limit is 0, no answer counts as weak for this reason."""
        self._attempts, self._strategy, self._route, self._call_context = (
            attempts,
            _Guarded(asking),
            route,
            call_context,
        )
        several = (*route.backends, *filter(None, (route.reference, route.escalate_to)))
        self._backends = {backend.name: backend for backend in several}
        self._reader = Reader(call_context.request)
        self._rules = call_context.record.tenant.policy.streams
        self._judged: list[StrategyAnswer] = []
        self._answers: list[Served | None] = []
        """The answer for each item of `_judged`; None if the answer was dropped or cannot be sent to the client."""
        self._errors: list[GatewayError] = []
        self._clock = asyncio.get_running_loop().time

    async def answer(self) -> Served:
        """Run the strategy and return the answer to serve. If no answer can be served, raises the errors of
        `Attempts.first_of`."""
        served: Served | None = None
        try:
            served = await (self._stream() if self._call_context.request.stream else self._plain())
        finally:
            self._call_context.record.answers = tuple(self._judged)
            left = [answer for answer in self._answers if answer is not None and answer is not served]
            for answer in left:  # bill all of them before the first await, because a cancellation could interrupt there
                self._attempts.bill(self._call_context, answer, "escalated")
            for answer in left:
                await answer.aclose()
        record = self._call_context.record
        record.weak = any(
            answer is served and judged.weak for judged, answer in zip(self._judged, self._answers, strict=True)
        )
        if len(record.attempts) > 1:
            self._call_context.hold.follow(served.attempt)
            record.escalated = any(attempt.outcome == "escalated" for attempt in record.attempts)
            self._attempts.totals.escalated += record.escalated
        return served

    # plain requests

    async def _plain(self) -> Served:
        while names := await self._next():
            if obstacle := await self._ask(names, math.inf, math.inf):
                self._stop(obstacle)
                break
        return await self._choice()

    # streams

    async def _stream(self) -> Served:
        until = self._clock() + self._rules.hold_for
        while names := await self._next():
            if self._is_last(names):
                if (served := await self._stream_directly(self._backends[names[0]])) is not None:
                    return served
            elif self._needs_beginning_only(names):
                if obstacle := await self._ask(names, self._rules.hold_tokens, self._rules.hold_for):
                    self._stop(obstacle)
                    break
            elif until - self._clock() <= self._expected_s(names):
                return await self._stream_reference("it would take too long")
            elif obstacle := await self._ask(names, math.inf, until - self._clock()):
                if isinstance(obstacle, TimeoutError):
                    return await self._stream_reference("it took too long")
                self._stop(obstacle)
                break
        return await self._choice()

    def _is_last(self, names: Sequence[str]) -> bool:
        """Whether `names` is a single backend whose answer will be served in any case. If so, the stream of this
        backend need not be held back."""
        if len(names) > 1:
            return False
        if self._needs_beginning_only(names) and not (self._rules.hold_tokens and self._rules.hold_for):
            return True
        judged = [*self._judged, StrategyAnswer(names[0], None, "refusal")]
        return not self._strategy.next(judged) and self._strategy.serves(judged) == len(self._judged)

    def _needs_beginning_only(self, names: Sequence[str]) -> bool:
        """Whether only the beginning of the next answer must be judged.

        True if `names` is a single backend, and the strategy accepts every answer of this backend that is not weak.
        """
        judged = [*self._judged, StrategyAnswer(names[0], None, confidence=1.0)]
        return (
            len(names) == 1 and not self._strategy.next(judged) and self._strategy.serves(judged) == len(self._judged)
        )

    def _expected_s(self, names: Sequence[str]) -> float:
        """The minimum number of seconds until the strategy is expected to end. Computed from the usual answer times of
        the strategy's backends."""
        judged = [*self._judged]
        seconds = 0.0
        while names:
            seconds += max(self._usual_answer_s(name) for name in names)
            judged += [StrategyAnswer(name, "agreed", confidence=1.0) for name in names]
            names = [] if len(judged) > len(self._backends) else self._strategy.next(judged)
        return seconds

    async def _stream_directly(self, backend: Backend) -> Served | None:
        """Send the stream of `backend` directly to the client. Returns None if `backend` fails."""
        try:
            return await self._attempts.first_of((backend,), self._with_spare_time(), last_resort=False)
        except GatewayError as error:
            if isinstance(error, BackendRefused) and not any(self._answers):
                raise
            self._failed(backend, error)
            return None

    async def _stream_reference(self, why: str) -> Served:
        """Stop the strategy and send the reference backend's stream to the client. `why`: the reason, which is stored
        in the record."""
        reference = self._route.reference or self._route.backends[-1]
        self._call_context.record.note("strategy left", why=why, to=reference.name)
        for judged, answer in zip(self._judged, self._answers, strict=True):
            if judged.backend == reference.name and answer is not None and not judged.weak:
                return answer
        if reference.name in {judged.backend for judged in self._judged}:
            return await self._choice()
        return await self._stream_directly(reference) or await self._choice()

    # both

    async def _next(self) -> tuple[str, ...]:
        """The names of the backends to call next.

        Empty if the strategy has ended, if the budget ended an answer, or if there is an answer and too little time
        for another one.
        """
        if self._cut_by_budget:
            return ()
        asked = {judged.backend for judged in self._judged}
        wanted = (name for name in self._strategy.next(self._judged) if name in self._backends and name not in asked)
        names = tuple(dict.fromkeys(wanted))
        if not names or all(answer is None for answer in self._answers):
            return names
        if self._call_context.deadline - self._clock() < _LEAST_S + max(self._usual_answer_s(name) for name in names):
            self._call_context.record.note("strategy stopped", why=DeadlineExceeded.code)
            return ()
        judged, answer = self._judged[-1], self._answers[-1]
        self._call_context.record.note(
            "asking on", after=judged.backend, to=names, why=judged.weak or "not settled", confidence=judged.confidence
        )
        if answer is not None and not answer.complete:
            self._answers[-1] = None
            await self._attempts.drop(self._call_context, answer, "escalated", judged.weak)
        return names

    @property
    def _cut_by_budget(self) -> bool:
        """Whether the budget ended an answer early. If so, no further answer can be paid, and the backend is not at
        fault."""
        return any(answer is not None and _cut_by_budget(answer) for answer in self._answers)

    def _usual_answer_s(self, name: str) -> float:
        return self._attempts.health(self._backends[name]).whole_s or 0.0

    def _with_spare_time(self) -> CallContext:
        """The call context for the next call. If an answer exists, the deadline is earlier, so that this answer can be
        served."""
        if all(answer is None for answer in self._answers):
            return self._call_context
        spare_s = min(_MOST_SPARE_S, _SPARE * (self._call_context.deadline - self._clock()))
        return replace(self._call_context, deadline=self._call_context.deadline - spare_s)

    async def _ask(self, names: Sequence[str], tokens: float, within_s: float) -> Obstacle | None:
        """Call the named backends, in parallel if there are several. If an error means that no further backend may be
        called, returns this error; otherwise None.

        `tokens`, `within_s`: how much of a stream is read, in content chunks and seconds.
        """
        call_context = self._with_spare_time()
        if len(names) == 1:
            return await self._one(self._backends[names[0]], call_context, tokens, within_s)
        call_context = replace(call_context, turn=asyncio.Lock())
        obstacle = None
        async with asyncio.TaskGroup() as group:
            asking = {
                group.create_task(self._one(self._backends[name], call_context, tokens, within_s)) for name in names
            }
            while asking:
                done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                obstacle = next((found for task in done if (found := task.result())), obstacle)
                if asking and (obstacle or not self._strategy.next(self._judged)):
                    for task in asking:
                        task.cancel()
                    break
        return obstacle

    async def _one(
        self, backend: Backend, call_context: CallContext, tokens: float, within_s: float
    ) -> Obstacle | None:
        """Call one backend and store its answer. `tokens`, `within_s`: the maximum content chunks and seconds of a
        stream to read. If they are infinite, the whole stream is read."""
        has_logprobs = self._route.escalate_below > 0 and "logprobs" in backend.capabilities
        muted = has_logprobs and logprobs.can_ask(call_context.request)
        if muted:
            call_context = replace(call_context, request=logprobs.with_logprobs(call_context.request))
        whole = tokens == math.inf
        try:
            async with asyncio.timeout(within_s if whole and within_s < math.inf else None):
                answer = await self._attempts.first_of(
                    (backend,), call_context, unsure=backend if has_logprobs else None, last_resort=False
                )
                if isinstance(answer, Whole) and _cut_by_budget(answer):
                    self._keep(StrategyAnswer(backend.name, None), answer)
                elif isinstance(answer, Whole):
                    judged = self._reader.answered(backend.name, answer.choices, answer.finish, answer.confidence)
                    self._keep(judged, answer)
                elif call_context.request.stream:
                    await self._begun(StreamGate(answer, muted=muted), call_context, tokens, within_s)
                else:  # neither a stream nor a plain answer: only its content type shows which
                    self._keep(StrategyAnswer(backend.name, None), answer)
        except TimeoutError as late:  # too late to be compared, but the request has time left
            return late
        except _FINAL as obstacle:
            return obstacle
        except GatewayError as error:
            self._failed(backend, error)
            return error if isinstance(error, BackendRefused) and not any(self._answers) else None
        return None

    async def _begun(self, held: StreamGate, call_context: CallContext, tokens: float, within_s: float) -> None:
        """Hold back the stream `held` while its beginning is judged. Stop the stream if its text is weak. `tokens`,
        `within_s`: maximum content chunks and seconds to hold back."""
        attempt = held.attempt
        name, thinks = attempt.backend.name, "reasoning" in attempt.backend.capabilities
        try:
            until = self._clock() + within_s
            why = await held.hold(
                tokens, until, call_context.hold, lambda text: self._reader.beginning(text, thinks=thinks)
            )
        except BudgetExhausted as spent:
            if any(self._answers):
                await self._attempts.drop(self._call_context, held, "interrupted", spent.code)
            else:  # the policy decides how many tokens of this answer may be relayed
                self._keep(StrategyAnswer(name, None, confidence=held.confidence), held)
            raise
        except BaseException as error:
            code = error.code if isinstance(error, GatewayError) else type(error).__name__
            await self._attempts.drop(self._call_context, held, "interrupted", code)
            raise
        if why:
            self._keep(StrategyAnswer(name, None, why, held.confidence), None)
            await self._attempts.drop(self._call_context, held, "escalated", why)
        elif held.complete and _cut_by_budget(held):
            self._keep(StrategyAnswer(name, None), held)
        elif held.complete and (choices := held.parsed_choices(call_context.request.dialect)):
            self._keep(self._reader.answered(name, choices, held.finish, held.confidence), held)
        elif tokens == math.inf and not held.complete:
            await self._attempts.drop(self._call_context, held, "interrupted", "too_slow")
            raise TimeoutError
        else:
            self._keep(StrategyAnswer(name, None, confidence=held.confidence), held)

    def _keep(self, judged: StrategyAnswer, answer: Served | None) -> None:
        if not judged.weak and judged.confidence is not None and judged.confidence < self._route.escalate_below:
            judged = replace(judged, weak="unsure")
        self._judged.append(judged)
        self._answers.append(answer)

    def _failed(self, backend: Backend, error: GatewayError) -> None:
        self._errors.append(error)
        self._keep(StrategyAnswer(backend.name, None, FAILED), None)
        self._call_context.record.note("member failed", backend=backend.name, code=error.code)

    def _stop(self, obstacle: Obstacle) -> None:
        """Stop the strategy, because `obstacle` prevents calls of further backends. If an answer was received before,
        the caller serves this answer. Otherwise raises `obstacle`."""
        if not any(self._answers):
            raise obstacle
        why = obstacle.code if isinstance(obstacle, GatewayError) else "too_slow"
        self._call_context.record.note("strategy stopped", why=why)

    async def _choice(self) -> Served:
        """The answer to serve. If none of the received answers can be served, calls further backends."""
        if not any(self._answers):
            return await self._fallback()
        chosen = self._answers[self._strategy.serves(self._judged)]
        if chosen is None:
            value = [(judged, answer) for judged, answer in zip(self._judged, self._answers, strict=True) if answer]
            sound = [answer for judged, answer in value if not judged.weak]
            chosen = sound[-1] if sound else value[-1][1]
        return chosen

    async def _fallback(self) -> Served:
        """Call further backends, because the strategy has no answer to serve.

        The order is: backends that were not called yet; backends whose answers were stopped, the reference first;
        backends above the ceiling.
        """
        asked = {judged.backend for judged in self._judged}
        stopped = [self._backends[judged.backend] for judged in self._judged if judged.weak != FAILED]
        rest = [backend for backend in self._route.backends if backend.name not in asked] + stopped
        route = self._route
        rest.sort(key=lambda one: (one.name in route.above, one.name in asked and one is not route.reference))
        if not rest and not self._call_context.record.attempts:
            # all breakers are open: one backend may be called as a probe
            rest = [self._backends[judged.backend] for judged in self._judged]
        if not rest:
            raise together(self._errors)
        return await self._attempts.first_of(rest, self._call_context)


def _cut_by_budget(answer: Served) -> bool:
    return answer.attempt.output_cap is not None and answer.finish == "length"
