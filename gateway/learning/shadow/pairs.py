"""Sends the same prompts to two backends for `thriftgate compare`. Each call is an attempt in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.backends.fleet import Fleet
from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.domain.answer import Answer
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.protocols import AttemptJournal, Contexts, PriceList
from gateway.domain.record import Attempt, Record, new_request_id
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached, Route
from gateway.domain.tenant import Tenant
from gateway.errors import BudgetExhausted, GatewayError, LedgerUnavailable
from gateway.learning.cost_hold import KIND, worst
from gateway.learning.judges import Agreement, Choices, Judge

_UNTOUCHED = Controls(untouched=True, priority="batch")


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    body: Mapping[str, Any]
    """The body of a chat completion request, without `model`."""
    expected: str | None = None
    """The right answer, if it is known."""

    def request(self, model: str) -> CompletionRequest:
        """The prompt as a request for `model`. Raises BadRequest."""
        return openai_chat.parse(orjson.dumps({**self.body, "model": model}), new_request_id(), _UNTOUCHED, {})


@dataclass(frozen=True, slots=True)
class Response:
    """The answer of one backend, with its duration and its cost."""

    choices: Choices = ()
    finish: str = ""
    error: str = ""
    """Error code if the answer is incomplete; else empty."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_pico: int | None = None
    """Cost in pico-dollars; None if the price is unknown or nothing was charged."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt with the answers of the backends a and b. `agreed`: the judge's score, 0..1, for b's answer compared
    with a's answer; None if undecided. `right`: how right a's and b's answers are, if the expected answer is known."""

    prompt: Prompt
    a: Response
    b: Response
    agreed: float | None
    right: tuple[float | None, float | None] = (None, None)

    @property
    def as_good(self) -> float | None:
        """A score, 0..1, for whether b's answer could have replaced a's answer; None if unknown. If the expected
        answer is known, the score is computed from it. Otherwise the judge decides.
        """
        of_a, of_b = self.right
        if of_a is not None and of_b is not None:
            return float(of_b >= of_a)
        return self.agreed


class PairSettlement:
    """Limits the total cost of all calls. Before a call, its maximum cost is held; after the call, its actual cost is
    booked."""

    def __init__(self, limit_pico: int, prices: PriceList) -> None:
        self._left, self._prices = limit_pico, prices
        self.spent = 0

    def hold(self, most_output: int) -> PairHold:
        return PairHold(self, most_output)

    def worst(self, backend: Backend, input_tokens: int, output_tokens: int) -> int:
        """The maximum cost of a call of `backend`, in pico-dollars. It is 0 for the operator's own server without a
        price. Raises BudgetExhausted for a hosted backend without a price."""
        price = self._prices.price(backend)
        if price is not None:
            return worst(price, input_tokens, output_tokens)
        if backend.hosted and not backend.simulated:
            raise BudgetExhausted(f"{backend.name} has no known price, so the limit cannot be enforced.")
        return 0

    def take(self, pico: int) -> None:
        if pico > self._left:
            raise BudgetExhausted("The rest of --max-usd does not cover another call.")
        self._left -= pico

    def settle(self, held: int, cost: int) -> None:
        self._left += held - cost
        self.spent += cost


class PairHold:
    """Implements `Hold` of domain/protocols.py for one call."""

    covers = float("inf")

    def __init__(self, settlement: PairSettlement, most_output: int) -> None:
        self._settlement, self._held = settlement, 0
        self.output_limit: int | None = most_output

    def left_nano(self) -> int | None:
        return None

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        pico = self._settlement.worst(backend, input_tokens, self.output_limit or 0)
        self._settlement.take(pico)
        self._held += pico

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Does nothing, because comparison calls do not stream."""

    def follow(self, attempt: Attempt) -> None:
        """Does nothing, because there is only one attempt."""

    def settle(self, cost_pico: int) -> None:
        self._settlement.settle(self._held, cost_pico)
        self._held = 0


class Pairs:
    """Makes the calls that compare two backends. The ledger rows of these calls belong to the team of `tenant`."""

    def __init__(
        self,
        fleet: Fleet,
        contexts: Contexts,
        journal: AttemptJournal,
        settlement: PairSettlement,
        tenant: Tenant,
        *,
        deadline_s: float = 300.0,
    ) -> None:
        self._fleet, self._contexts, self._journal = fleet, contexts, journal
        self._settlement, self._tenant, self._deadline_s = settlement, tenant, deadline_s

    async def compare(self, prompt: Prompt, a: Backend, b: Backend, judge: Judge, most_output: int) -> Pair:
        """Call both backends, and let the judge compare their answers. If a backend fails, the returned pair contains
        the error. Raises BudgetExhausted, LedgerUnavailable."""
        one, other = await _both(self.response(prompt, a, most_output), self.response(prompt, b, most_output))
        agreed = None
        correct: tuple[float | None, float | None] = (None, None)
        if not one.error and not other.error:
            request = prompt.request(b.model)
            agreed = await judge.compare(request, other.choices, one.choices, other.finish)
            correct = await right(prompt, request, one), await right(prompt, request, other)
        return Pair(prompt, one, other, agreed, correct)

    async def ask(self, backend: Backend, request: CompletionRequest, most_output: int) -> Response:
        """Make one call and record it in the ledger. Raises BudgetExhausted, LedgerUnavailable and the backend's
        errors."""
        record = Record(  # without the prompt's request id, because a judge is called twice for one request
            new_request_id(), self._tenant, backend.name, request.dialect, False, tags={"purpose": "compare"}, kind=KIND
        )
        hold = self._settlement.hold(most_output)
        answer: Answer | None = None
        try:
            answer = await self._fleet.call(
                Route((backend,), "called for a comparison"),
                request,
                record,
                plan_for=lambda of: self._contexts.plan_for(request, self._tenant, of),
                hold=hold,
                books=self._journal,
                deadline=asyncio.get_running_loop().time() + self._deadline_s,
            )
            attempt = self._close(answer, record)
        finally:
            hold.settle(sum(each.cost_pico or 0 for each in record.attempts))
            if answer is not None:
                await answer.aclose()
        usage = attempt.usage or Usage()
        body = answer.completion()
        choices = answer.choices or (orjson.loads(body).get("choices", ()) if body else ())
        took = (attempt.ended_at or attempt.started_at) - attempt.started_at
        return Response(choices, answer.finish, "", took, usage.all_input, usage.all_output, attempt.cost_pico)

    async def response(self, prompt: Prompt, backend: Backend, most_output: int) -> Response:
        """Make one call and record it in the ledger. If the backend fails, the returned response contains the error.
        Raises BudgetExhausted, LedgerUnavailable.
        """
        try:
            return await self.ask(backend, prompt.request(backend.model), most_output)
        except (BudgetExhausted, LedgerUnavailable):
            raise
        except GatewayError as error:
            return Response(error=error.code)

    def _close(self, answer: Answer, record: Record) -> Attempt:
        attempt = answer.attempt
        assert attempt is not None
        if attempt.usage is None:
            attempt.estimate_usage(attempt.chunks)
        attempt.outcome = "ok" if answer.complete else "interrupted"
        self._journal.close(attempt, record)
        return attempt


async def _both(one: Awaitable[Response], other: Awaitable[Response]) -> tuple[Response, Response]:
    """Make both calls at the same time. If one call cannot be paid, the other call still runs to its end and is
    recorded."""
    found = await asyncio.gather(one, other, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    first, second = found
    assert isinstance(first, Response)
    assert isinstance(second, Response)
    return first, second


async def right(prompt: Prompt, request: CompletionRequest, response: Response) -> float | None:
    """Score how right the answer is, 0..1. None if the prompt has no expected answer, or if the answers cannot be
    compared."""
    if prompt.expected is None:
        return None
    expected = [{"message": {"role": "assistant", "content": prompt.expected}}]
    return await Agreement().compare(request, response.choices, expected, response.finish)
