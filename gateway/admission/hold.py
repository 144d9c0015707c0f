"""What is set aside for one request, grown with its answer, settled to what it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.admission.expect import Expectation, Expectations
from gateway.admission.purse import Purse
from gateway.domain.backend import Backend
from gateway.domain.price import Price
from gateway.domain.protocols import Hold
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.units import PICO_PER_NANO, pico_to_nano_up
from gateway.errors import BudgetExhausted, StateUnavailable

PATIENCE_S = 5.0
"""How long a request waits for the holds of others before it is told that the budget is too small for both."""
_AMPLE = 8
"""With as many times the worst case left in the budget, the worst case is held and the answer needs no cap."""
_UNCAPPED_TOKENS = 4096
"""The worst case where neither client nor backend says."""
_LEAST_CAP_TOKENS = 256
"""Near the end of a budget a plain answer is capped at what is expected, but not below this."""
_MARGIN_TOKENS = 64
"""A stream asks for more before it has used up what is held."""
_STEP_TOKENS = 256
_SHARE = 128
"""No stream grows by more than this part of what nobody holds, so that many of them can share the end of a budget."""
_LEAST_TOKENS = 16
"""Less is not worth a stream, nor a step of one."""
_PAUSE_TOKENS = 4
"""Refused, it goes on with what is held and asks again so soon."""
_ON_THE_WAY = 2
"""Tokens kept back for those that a backend has sent before it notices that nobody listens."""
_EVER_S = 1e9
_EVER = float("inf")


@dataclass(slots=True)
class _Call:
    """The call that the hold was extended for last."""

    price: Price
    input_tokens: int
    cap: int | None
    """Most tokens the answer can have, over all choices."""
    cache_writes: bool
    """May the backend charge for writing its prompt cache?"""
    expectation: Expectation
    paid: int = 0
    """Output tokens of a stream that are held for."""


class RequestHold(Hold, Protocol):
    """What the pipeline has of it."""

    held: int

    def settle(self, cost_pico: int) -> None:
        """The request cost so much in all (pico-dollars). Synchronous."""
        ...

    def release(self) -> None:
        """Give everything back, unless it was settled."""
        ...


class BudgetHold:
    """Implements `Hold` on one purse. Whoever has it calls `release` in the end, settled or not.

    Whoever relays a stream may skip `grow` up to `covers` output tokens. `output_limit`, when not None, is the most
    output tokens that may be asked of the backend (per answer): what is held does not pay for more.
    """

    __slots__ = (
        "_answers",
        "_call",
        "_earlier",
        "_expectations",
        "_known",
        "_over",
        "_parts",
        "_patience_s",
        "_place",
        "_purse",
        "_record",
        "_request",
        "covers",
        "held",
        "output_limit",
    )

    def __init__(
        self,
        purse: Purse | None,
        expectations: Expectations,
        record: Record,
        request: CompletionRequest | None,
        patience_s: float,
    ) -> None:
        self.covers = _EVER
        self.output_limit: int | None = None
        self.held = 0
        """Units of the purse's meter."""
        self._purse, self._expectations = purse, expectations
        self._record, self._request, self._patience_s = record, request, patience_s
        self._parts: dict[int, int] = {}
        """Place of an attempt on the record → units held for it."""
        self._call: _Call | None = None
        self._known = False
        """Does `_call` tell of the last of `_parts`?"""
        self._place: int | None = None
        """Of the attempt that is served, where it is not the last one."""
        self._earlier: dict[int, tuple[_Call | None, float, int | None]] | None = None
        """Place of an attempt → what was known when it was held for."""
        self._over = False
        self._answers = request.parallel if request else 1

    async def extend(self, backend: Backend, input_tokens: int) -> None:
        """Hold enough for a call of `backend` too. Raises BudgetExhausted."""
        purse = self._purse
        if purse is None:
            return
        if self._known or self._call is not None:
            self._begin_anew()
        price = purse.price(backend)
        if price is None and backend.kind != "simulated":
            self._record.note("unpriced", backend=backend.name)  # nothing can be held for it; its spend stays unknown
        if price is None or price.free:
            await self._resize(0)
            return
        if not purse.known:
            await self._look(purse)
        if purse.soft:
            purse.note_soft(self._record)
        expectation = self._expectations.of(self._record.tenant.team, backend.name)
        tokens = expectation.input_tokens(input_tokens)
        request = self._request
        writes = price.cache_write_5m is not None and (request is None or b"cache_control" in request.raw)
        self._call = call = _Call(price, tokens, self._cap(backend, tokens), writes, expectation)
        await self._open(purse, call)

    def _begin_anew(self) -> None:
        """Another attempt follows: keep what is known of the one before, in case that its answer is served."""
        if self._known:
            self._earlier = self._earlier or {}
            self._earlier[max(self._parts)] = self._call, self.covers, self.output_limit
        self.covers, self.output_limit, self._call, self._place, self._known = _EVER, None, None, None, False

    async def _look(self, purse: Purse) -> None:
        try:
            await purse.look(_EVER_S)
        except StateUnavailable:
            return  # taking meets it again and applies the budget's rule

    def _cap(self, backend: Backend, input_tokens: int) -> int | None:
        cap = self._request.max_output_tokens if self._request is not None else None
        if backend.max_output_tokens is not None:
            cap = _least(backend.max_output_tokens, cap)
        if backend.window_tokens:
            cap = _least(max(1, backend.window_tokens - input_tokens), cap)
        return None if cap is None else cap * self._answers

    async def _open(self, purse: Purse, call: _Call) -> None:
        """Hold for an answer whose length is not known yet."""
        if self._record.stream:
            if purse.truncates:
                await self._open_some(purse, call, self._begun(purse, call))
            else:
                tokens = _least(call.expectation.output_tokens * self._answers, call.cap)
                await self._resize(self._cost(call, tokens))
                self._pays(call, tokens)
            return
        tokens = call.cap if call.cap is not None else _UNCAPPED_TOKENS * self._answers
        worst = self._cost(call, tokens)
        if not purse.ample(worst * _AMPLE):
            expected = call.expectation.output_tokens * self._answers
            capped = _least(max(expected, _LEAST_CAP_TOKENS * self._answers), call.cap)
            if purse.truncates:
                await self._open_some(purse, call, capped)
                return
            if capped < tokens:
                worst = self._cost(call, capped)
                self.output_limit = capped // self._answers
        await self._resize(worst)

    def _begun(self, purse: Purse, call: _Call) -> int:
        """What a stream that may be cut begins with: as much as half of them take, or, until that is known, a share of
        what there is."""
        tokens = _least(call.expectation.becoming() * self._answers, call.cap)
        if call.expectation.known or not purse.known:
            return tokens
        return min(tokens, max(self._affordable(call, purse.remaining) // _SHARE, _LEAST_TOKENS))

    async def _open_some(self, purse: Purse, call: _Call, tokens: int) -> None:
        """Where an answer may end at the limit: hold for `tokens`, or for what is left if that is less."""
        most = call.cap if call.cap is not None else _UNCAPPED_TOKENS * self._answers
        for again in (True, False):
            left = self._affordable(call, purse.left) if purse.known else most
            some = min(tokens, left) if left >= _LEAST_TOKENS * self._answers else tokens
            try:
                await self._resize(self._cost(call, some))
                break
            except BudgetExhausted:  # perhaps less is left than was known
                if not again or self._affordable(call, purse.left) >= left:
                    raise
        if self._record.stream:
            self._pays(call, some)
            if left < most:  # no answer can be longer than what the whole budget pays for
                self.output_limit = max(left, some) // self._answers
        elif some < most:
            self.output_limit = some // self._answers

    def _pays(self, call: _Call, tokens: int) -> None:
        call.paid = tokens
        if tokens == call.cap:
            self.covers = _EVER
        elif tokens >= 4 * _MARGIN_TOKENS:
            self.covers = tokens - _MARGIN_TOKENS
        else:
            self.covers = tokens * 3 // 4 - 1

    def _cost(self, call: _Call, output_tokens: int) -> int:
        """Units at most."""
        most = call.price.most(call.input_tokens, output_tokens, cache_writes=call.cache_writes)
        return pico_to_nano_up(most)

    def _affordable(self, call: _Call, units: int) -> int:
        """Output tokens that `units` pay for, beside the input; below zero where not even that."""
        begun = call.price.most(call.input_tokens, 0, cache_writes=call.cache_writes)
        with_one = call.price.most(call.input_tokens, 1, cache_writes=call.cache_writes)
        return (units * PICO_PER_NANO - begun) // max(with_one - begun, 1)

    async def _resize(self, part: int) -> None:
        """Hold `part` for the coming attempt beside what the earlier ones cost or may still cost."""
        purse, attempts = self._purse, self._record.attempts
        assert purse is not None
        if not attempts and not self._parts:  # nearly always
            if self._over or not purse.try_take(part, self._record):
                await self._take(part)
            else:
                self.held += part
            self._parts[0], self._known = part, True
            return
        parts = {len(attempts): part}
        for place, held in self._parts.items():
            if place < len(attempts):
                took = purse.meter.of_attempt(attempts[place])
                parts[place] = held if took is None else took
        wanted = sum(parts.values())
        if wanted > self.held:
            await self._take(wanted - self.held)
        elif wanted < self.held:
            purse.give(self.held - wanted)
            self.held = wanted
        self._parts, self._known = parts, True

    async def _take(self, units: int) -> None:
        purse = self._purse
        assert purse is not None
        if not purse.try_take(units, self._record):
            await purse.take(units, self.held, self._record, self._patience_s)
        if self._over:  # settled or released by another task meanwhile
            purse.give(units)
        else:
            self.held += units

    async def grow(self, output_tokens: int) -> None:
        """The stream has `output_tokens` by now: see that what is held covers some more. Raises BudgetExhausted when
        all that is held is used up, but for what may be on its way."""
        call = self._call
        if output_tokens <= self.covers or call is None or self._over:
            return
        refused = None
        for tokens in self._steps(call, output_tokens):
            refused = await self._pay(call, tokens)
            if refused is None:
                return
        assert refused is not None
        last = call.paid - _ON_THE_WAY
        if output_tokens >= last:
            raise refused
        self.covers = min(output_tokens + _PAUSE_TOKENS, last - 1)

    def _steps(self, call: _Call, output_tokens: int) -> tuple[int, ...]:
        """How long the answer is to be paid for next: what is worth trying, the longer one first."""
        assert self._purse is not None
        least = max(call.paid, output_tokens) + _LEAST_TOKENS
        if self._purse.truncates and call.expectation.known:
            wanted = call.expectation.becoming(output_tokens // self._answers) * self._answers
        else:
            room = self._affordable(call, self._purse.remaining) // _SHARE
            wanted = min(max(call.paid * 3 // 2, output_tokens + _STEP_TOKENS), call.paid + room)
        return (wanted, least) if wanted > least else (least,)

    async def _pay(self, call: _Call, tokens: int) -> BudgetExhausted | None:
        """Hold for an answer of `tokens` tokens; why not, when that is too much."""
        assert self._purse is not None
        tokens = _least(tokens, call.cap)
        place = max(self._parts) if self._place is None else self._place
        more = self._cost(call, tokens) - self._parts[place]
        if more > 0:
            refused = await self._purse.stretch(more, self.held, self._record)
            if refused is not None:
                return refused
            if self._over:
                self._purse.give(more)
                return None
            self.held += more
            self._parts[place] += more
        self._pays(call, tokens)
        return None

    def follow(self, attempt: Attempt) -> None:
        """Of several attempts that were held for, this one's answer is served: `covers` and `grow` are about it."""
        place = self._record.attempts.index(attempt)
        if self._earlier and place in self._earlier and place in self._parts:
            self._call, self.covers, self.output_limit = self._earlier[place]
            self._place = place
        if attempt.ended_at is not None:  # all of it is here
            self.covers = _EVER

    def settle(self, cost_pico: int, *, learn: bool = True) -> None:
        """The request cost so much in all. Synchronous; the counters hear of it within the lease period."""
        purse, record = self._purse, self._record
        if self._over or purse is None:
            return
        self._over = True
        purse.settle(self.held, purse.meter.of_request(cost_pico, record))
        self.held = 0
        if not learn:
            return
        for attempt in record.attempts:
            usage = attempt.usage
            if usage is not None and not usage.estimated and attempt.outcome in ("ok", "escalated"):
                expectation = self._expectations.of(record.tenant.team, attempt.backend.name)
                expectation.learn(attempt.input_tokens, usage, self._answers)

    def release(self) -> None:
        """Give everything back, unless it was settled."""
        if not self._over and self._purse is not None:
            self._over = True
            self._purse.give(self.held)
            self.held = 0


def _least(tokens: int, cap: int | None) -> int:
    return tokens if cap is None else min(tokens, cap)
