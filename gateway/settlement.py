"""An answer that is bought of a backend: money set aside, paid as it comes, settled, journalled and kept at its end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from gateway.admission.budgets import RequestHold
from gateway.admission.rate_limits import Permit
from gateway.cache.cache import Cache
from gateway.cache.coalescing.shared_call import Paid, SharedCall
from gateway.cache.result import Miss
from gateway.domain.answer import Answer, Sink, delivered_at_most, delivered_tokens
from gateway.domain.money.usage import interrupted
from gateway.domain.protocols import AttemptJournal, Sampler, TokenCounter
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest
from gateway.errors import BudgetExhausted
from gateway.routing.router import Router

log = logging.getLogger(__name__)


LONGEST_FINISH = 64
"""Characters; a provider may give any reason."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The rooms that hear how a purchase ended."""

    books: AttemptJournal
    counter: TokenCounter
    cache: Cache
    router: Router
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


class PaidAnswer:
    """Belongs to the request that pays. It may outlive it, while others still want the answer."""

    answer: Answer
    hold: RequestHold | None = None
    ending = b""
    """What is left to release when all is poured: the terminating event, and what arrived together with it."""

    def __init__(
        self, settlement: Settlement, request: CompletionRequest, record: Record, permit: Permit, miss: Miss
    ) -> None:
        self._till, self._request, self._record, self._admitted, self._miss = settlement, request, record, permit, miss
        self._settled = self._closed = False
        self._after: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if (answer := getattr(self, "answer", None)) is not None:
            await close_quietly(answer)

    @property
    def paid(self) -> Paid:
        """Exact when it is settled."""
        if (attempt := self.answer.attempt) is None:
            return Paid(None, None, "", "")
        return Paid(attempt.usage, attempt.cost_pico, attempt.backend.name, attempt.backend.model)

    async def start_call(self, shared: SharedCall, buy: Callable[[], Awaitable[None]]) -> None:
        """`buy` a plain answer, which all who follow `shared` get too, also when our own client leaves meanwhile."""
        self._record.others = shared.outlives
        self._after.append(shared.finish_call)
        await shared.run_call(self, buy)

    async def share(self, buy: Callable[[], Awaitable[None]], shared: SharedCall) -> None:
        """`buy` it for all who follow `shared`, in a task of its own."""
        async with self:
            await buy()
            await shared.publish(self)

    def close(self) -> None:
        """Settle, keep the answer, give back what is held. Synchronous, so that no cancellation comes in between."""
        if not self._settled:
            self.settle()
        if (answer := getattr(self, "answer", None)) is not None:
            log_errors(self._keep, answer)
        if self.hold is not None:
            log_errors(self.hold.release)
        self._closed = True
        self._record.others = None
        if after := self._after:
            self._after = []
            for step in after:
                log_errors(step)

    def _keep(self, answer: Answer) -> None:
        """For who asks the same, and for who compares."""
        settlement = self._till
        if self._record.curtailed:
            return
        settlement.cache.store(self._miss, answer, self._record)
        if settlement.sampler is not None:
            settlement.sampler.offer(self._request, self._record, answer)

    def afterwards(self, step: Callable[[], None]) -> None:
        """Do it when all is closed, at once if that has been."""
        if self._closed:
            step()
        else:
            self._after.append(step)

    def settle(self) -> None:
        """Price → journal → settle, the first time that it is called: before the end is released, else at the exits."""
        if not self._settled:
            self._settled = True
            log_errors(self._settle, getattr(self, "answer", None))

    def _settle(self, answer: Answer | None) -> None:
        if self.hold is None:  # no backend was asked
            self._admitted.settle(0)
            return
        cost_pico, tokens = self._till.close(self._record, answer)
        self.hold.settle(cost_pico)
        self._admitted.settle(tokens)
        self._till.router.learn(self._record)

    async def pipe_to(self, take: Sink) -> bool:
        """Hand `take` the answer as it comes, until it wants no more now (returns True) or all but `ending` is said.

        No piece is handed on before what is held covers it, and `ending` is known once the money is settled and
        journalled. Raises BudgetExhausted and what the answer raises.
        """
        answer, hold, attempt = self.answer, self.hold, self.answer.attempt
        if not answer.stream and answer.over:  # nothing comes before its ending
            self.settle()
            self.ending = answer.ending
            return False
        kept = b""

        def hand_on(piece: bytes) -> bool:
            if answer.over:
                self.ending += piece
                return True
            return take(piece)

        def covered(piece: bytes) -> bool:
            nonlocal kept
            if hold is not None and attempt is not None and attempt.seen > hold.covers:
                kept = piece
                return False
            return hand_on(piece)

        while await answer.pipe_to(covered):
            if not kept:
                return True
            assert hold is not None
            assert attempt is not None
            piece, kept = kept, b""
            try:
                await hold.grow(delivered_at_most(answer, attempt), attempt.seen)
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
        delivered = delivered_at_most(answer, attempt)
        if not await answer.cut(interrupted(attempt.reported, attempt.input_tokens, delivered)):
            return False
        attempt.error = spent.code
        self._record.note("truncated", tokens=delivered, why=spent.message)
        return True


def log_errors(step: Callable[..., object], *what: Any) -> None:
    """An error at a request's end is logged: it must break neither an answer that is whole nor the steps after it."""
    try:
        step(*what)
    except Exception:
        log.exception("a request could not be closed in order")


async def close_quietly(answer: Answer) -> None:
    """Close the backend's connection; what goes wrong then is no concern of whoever has the answer."""
    try:
        await answer.aclose()
    except Exception:
        log.exception("an answer's connection could not be closed")
