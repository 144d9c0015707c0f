"""Runs a strategy: calls backends in its order, shows it their answers, and serves the one it chooses."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import replace

from gateway.backends.attempts import Attempts, CallContext, together
from gateway.backends.cascade.stream_gate import StreamGate
from gateway.backends.cascade.weak_signals import Reader
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
"""What keeps anybody else from being asked; TimeoutError: a stream may not be kept back for longer."""

_LEAST_S = 0.25
"""With less than this until the deadline, beside what the next answer usually takes, nobody else is asked."""
_SPARE, _MOST_SPARE_S = 0.1, 1.0
"""Share of the time left that is kept for serving the best answer so far, and the most of it."""
_OVER = (BudgetExhausted, DeadlineExceeded, LedgerUnavailable)
"""What keeps every further backend from being asked, too."""


class _Careful:
    """Implements `RunningStrategy` over another one, whose own mistakes must not fail a request."""

    __slots__ = ("_asking",)

    def __init__(self, asking: RunningStrategy) -> None:
        self._asking = asking

    def next(self, answers: Sequence[StrategyAnswer]) -> tuple[str, ...]:
        try:
            return self._asking.next(answers)
        except Exception:
            log.exception("a strategy failed to say whom to ask next; what there is must do")
            return ()

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        try:
            return self._asking.serves(answers)
        except Exception:
            log.exception("a strategy failed to say which answer is given; it is the last one")
            return len(answers) - 1


class Cascade:
    """One request's. Answers that wait for a verdict are open in the books; those that do not serve are closed.

    A plain request's answers are read whole. Of a stream, the beginning is kept back where the strategy would ask on
    only because of a weak one; where it wants votes, whole answers are, if that is quick enough; else the reference
    streams. What the client has seen the first byte of is never taken back.
    """

    def __init__(self, attempts: Attempts, asking: RunningStrategy, route: Route, call_context: CallContext) -> None:
        """With `route.escalate_below`, answers are weak whose tokens were less probable than that."""
        self._attempts, self._asking, self._route, self._call_context = attempts, _Careful(asking), route, call_context
        several = (*route.backends, *filter(None, (route.reference, route.escalate_to)))
        self._backends = {backend.name: backend for backend in several}
        self._reader = Reader(call_context.request)
        self._rules = call_context.record.tenant.policy.streams
        self._told: list[StrategyAnswer] = []
        self._answers: list[Served | None] = []
        """Beside each of `_told`: None where there is nothing to serve, or no longer."""
        self._errors: list[GatewayError] = []
        self._clock = asyncio.get_running_loop().time

    async def answer(self) -> Served:
        """Raises what `Attempts.first_of` raises, when there is no answer at all."""
        served: Served | None = None
        try:
            served = await (self._streamed() if self._call_context.request.stream else self._settled())
        finally:
            self._call_context.record.answers = tuple(self._told)
            left = [answer for answer in self._answers if answer is not None and answer is not served]
            for answer in left:  # all of them before anything that a cancellation could come between
                self._attempts.bill(self._call_context, answer, "escalated")
            for answer in left:
                await answer.aclose()
        record = self._call_context.record
        record.weak = any(
            answer is served and told.weak for told, answer in zip(self._told, self._answers, strict=True)
        )
        if len(record.attempts) > 1:
            self._call_context.hold.follow(served.attempt)
            record.escalated = any(attempt.outcome == "escalated" for attempt in record.attempts)
            self._attempts.totals.escalated += record.escalated
        return served

    # plain requests

    async def _settled(self) -> Served:
        while names := await self._next():
            if obstacle := await self._ask(names, math.inf, math.inf):
                self._stop(obstacle)
                break
        return await self._choice()

    # streams

    async def _streamed(self) -> Served:
        until = self._clock() + self._rules.hold_for
        while names := await self._next():
            if self._is_last(names):
                if (served := await self._straight(self._backends[names[0]])) is not None:
                    return served
            elif self._by_beginnings(names):
                if obstacle := await self._ask(names, self._rules.hold_tokens, self._rules.hold_for):
                    self._stop(obstacle)
                    break
            elif until - self._clock() <= self._expected_s(names):
                return await self._reference("it would take too long")
            elif obstacle := await self._ask(names, math.inf, until - self._clock()):
                if isinstance(obstacle, TimeoutError):
                    return await self._reference("it took too long")
                self._stop(obstacle)
                break
        return await self._choice()

    def _is_last(self, names: Sequence[str]) -> bool:
        """Is a single backend to be asked whose answer is given, whatever it is? Then it need not be kept back."""
        if len(names) > 1:
            return False
        if self._by_beginnings(names) and not (self._rules.hold_tokens and self._rules.hold_for):
            return True
        told = [*self._told, StrategyAnswer(names[0], None, "refusal")]
        return not self._asking.next(told) and self._asking.serves(told) == len(self._told)

    def _by_beginnings(self, names: Sequence[str]) -> bool:
        """Would the strategy be content with a sound answer of this one, whatever it comes down to?"""
        told = [*self._told, StrategyAnswer(names[0], None, confidence=1.0)]
        return len(names) == 1 and not self._asking.next(told) and self._asking.serves(told) == len(self._told)

    def _expected_s(self, names: Sequence[str]) -> float:
        """How long it takes at best until the strategy is settled, by what is known of its backends."""
        told = [*self._told]
        seconds = 0.0
        while names:
            seconds += max(self._usual_s(name) for name in names)
            told += [StrategyAnswer(name, "agreed", confidence=1.0) for name in names]
            names = [] if len(told) > len(self._backends) else self._asking.next(told)
        return seconds

    async def _straight(self, backend: Backend) -> Served | None:
        """Its stream, as it comes; None when it fails."""
        try:
            return await self._attempts.first_of((backend,), self._later(), last_resort=False)
        except GatewayError as error:
            if isinstance(error, BackendRefused) and not any(self._answers):
                raise
            self._failed(backend, error)
            return None

    async def _reference(self, why: str) -> Served:
        """The reference's stream at once, instead of whatever the strategy wanted."""
        reference = self._route.reference or self._route.backends[-1]
        self._call_context.record.note("strategy left", why=why, to=reference.name)
        for told, answer in zip(self._told, self._answers, strict=True):
            if told.backend == reference.name and answer is not None and not told.weak:
                return answer
        if reference.name in {told.backend for told in self._told}:
            return await self._choice()
        return await self._straight(reference) or await self._choice()

    # both

    async def _next(self) -> tuple[str, ...]:
        """Whom to ask now; nobody once there is an answer and no time for another."""
        if self._curtailed:
            return ()
        asked = {told.backend for told in self._told}
        wanted = (name for name in self._asking.next(self._told) if name in self._backends and name not in asked)
        names = tuple(dict.fromkeys(wanted))
        if not names or all(answer is None for answer in self._answers):
            return names
        if self._call_context.deadline - self._clock() < _LEAST_S + max(self._usual_s(name) for name in names):
            self._call_context.record.note("strategy stopped", why=DeadlineExceeded.code)
            return ()
        told, answer = self._told[-1], self._answers[-1]
        self._call_context.record.note(
            "asking on", after=told.backend, to=names, why=told.weak or "not settled", confidence=told.confidence
        )
        if answer is not None and not answer.complete:
            self._answers[-1] = None
            await self._attempts.drop(self._call_context, answer, "escalated", told.weak)
        return names

    @property
    def _curtailed(self) -> bool:
        """Has money ended an answer? Then there is none for another one, and its end says nothing about its backend."""
        return any(answer is not None and _curtailed(answer) for answer in self._answers)

    def _usual_s(self, name: str) -> float:
        return self._attempts.health(self._backends[name]).whole_s or 0.0

    def _later(self) -> CallContext:
        """With some time to spare, once there is an answer that could be served instead."""
        if all(answer is None for answer in self._answers):
            return self._call_context
        spare_s = min(_MOST_SPARE_S, _SPARE * (self._call_context.deadline - self._clock()))
        return replace(self._call_context, deadline=self._call_context.deadline - spare_s)

    async def _ask(self, names: Sequence[str], tokens: float, within_s: float) -> Obstacle | None:
        """Ask them, all at once if they are several; returns what keeps anybody else from being asked, too."""
        call_context = self._later()
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
                if asking and (obstacle or not self._asking.next(self._told)):
                    for task in asking:
                        task.cancel()
                    break
        return obstacle

    async def _one(
        self, backend: Backend, call_context: CallContext, tokens: float, within_s: float
    ) -> Obstacle | None:
        """Ask one and keep what it says; a stream up to `tokens`, and `within_s` of its beginning, or whole."""
        tells = self._route.escalate_below > 0 and "logprobs" in backend.capabilities
        muted = tells and logprobs.can_tell(call_context.request)
        if muted:
            call_context = replace(call_context, request=logprobs.sounded(call_context.request))
        whole = tokens == math.inf
        try:
            async with asyncio.timeout(within_s if whole and within_s < math.inf else None):
                answer = await self._attempts.first_of(
                    (backend,), call_context, unsure=backend if tells else None, last_resort=False
                )
                if isinstance(answer, Whole) and _curtailed(answer):
                    self._keep(StrategyAnswer(backend.name, None), answer)
                elif isinstance(answer, Whole):
                    told = self._reader.answered(backend.name, answer.choices, answer.finish, answer.confidence)
                    self._keep(told, answer)
                elif call_context.request.stream:
                    await self._begun(StreamGate(answer, muted=muted), call_context, tokens, within_s)
                else:  # neither a stream nor whole: only its content type told
                    self._keep(StrategyAnswer(backend.name, None), answer)
        except TimeoutError as late:  # too late to be compared; the request itself has time left
            return late
        except _OVER as obstacle:
            return obstacle
        except GatewayError as error:
            self._failed(backend, error)
            return error if isinstance(error, BackendRefused) and not any(self._answers) else None
        return None

    async def _begun(self, held: StreamGate, call_context: CallContext, tokens: float, within_s: float) -> None:
        """Keep a stream back, and stop it as soon as what it says is reason enough."""
        attempt = held.attempt
        name, thinks = attempt.backend.name, "reasoning" in attempt.backend.capabilities
        try:
            until = self._clock() + within_s
            why = await held.hold(
                tokens, until, call_context.hold, lambda said: self._reader.beginning(said, thinks=thinks)
            )
        except BudgetExhausted as spent:
            if any(self._answers):
                await self._attempts.drop(self._call_context, held, "interrupted", spent.code)
            else:  # how far it may go is the policy's to say, where it is relayed
                self._keep(StrategyAnswer(name, None, confidence=held.confidence), held)
            raise
        except BaseException as error:
            code = error.code if isinstance(error, GatewayError) else type(error).__name__
            await self._attempts.drop(self._call_context, held, "interrupted", code)
            raise
        if why:
            self._keep(StrategyAnswer(name, None, why, held.confidence), None)
            await self._attempts.drop(self._call_context, held, "escalated", why)
        elif held.complete and _curtailed(held):
            self._keep(StrategyAnswer(name, None), held)
        elif held.complete and (said := held.said(call_context.request.dialect)):
            self._keep(self._reader.answered(name, said, held.finish, held.confidence), held)
        elif tokens == math.inf and not held.complete:
            await self._attempts.drop(self._call_context, held, "interrupted", "too_slow")
            raise TimeoutError
        else:
            self._keep(StrategyAnswer(name, None, confidence=held.confidence), held)

    def _keep(self, told: StrategyAnswer, answer: Served | None) -> None:
        if not told.weak and told.confidence is not None and told.confidence < self._route.escalate_below:
            told = replace(told, weak="unsure")
        self._told.append(told)
        self._answers.append(answer)

    def _failed(self, backend: Backend, error: GatewayError) -> None:
        self._errors.append(error)
        self._keep(StrategyAnswer(backend.name, None, FAILED), None)
        self._call_context.record.note("member failed", backend=backend.name, code=error.code)

    def _stop(self, obstacle: Obstacle) -> None:
        """Nobody else can be asked: what there is must do. Raises `obstacle` where there is nothing."""
        if not any(self._answers):
            raise obstacle
        why = obstacle.code if isinstance(obstacle, GatewayError) else "too_slow"
        self._call_context.record.note("strategy stopped", why=why)

    async def _choice(self) -> Served:
        """The answer that is given; where there is none, that of whoever stands by."""
        if not any(self._answers):
            return await self._stand_in()
        chosen = self._answers[self._asking.serves(self._told)]
        if chosen is None:
            given = [(told, answer) for told, answer in zip(self._told, self._answers, strict=True) if answer]
            sound = [answer for told, answer in given if not told.weak]
            chosen = sound[-1] if sound else given[-1][1]
        return chosen

    async def _stand_in(self) -> Served:
        """Nobody of the strategy's gave an answer that is still there: who was not asked, else who was stopped."""
        asked = {told.backend for told in self._told}
        stopped = [self._backends[told.backend] for told in self._told if told.weak != FAILED]
        rest = [backend for backend in self._route.backends if backend.name not in asked] + stopped
        if not rest and not self._call_context.record.attempts:
            rest = [self._backends[told.backend] for told in self._told]  # all of them rest: one may be tried
        if not rest:
            raise together(self._errors)
        return await self._attempts.first_of(rest, self._call_context)


def _curtailed(answer: Served) -> bool:
    return answer.attempt.output_cap is not None and answer.finish == "length"
