"""Money set aside for one request, grown with its answer, settled to what it cost."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.admission.expect import Expectations
from gateway.admission.purse import Purse
from gateway.domain.backend import Backend
from gateway.domain.price import Price
from gateway.domain.protocols import PriceList
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.units import pico_to_nano_up
from gateway.errors import BudgetExhausted, StateUnavailable

PATIENCE_S = 5.0
"""How long a request waits for the holds of others before it is told that the budget is too small for both."""
_GROW_PATIENCE_S = 2.0
_AMPLE = 8
"""With as many times the worst case left in the budget, the worst case is held and the answer needs no cap."""
_UNCAPPED_TOKENS = 4096
"""The worst case where neither client nor backend says."""
_LEAST_CAP_TOKENS = 256
"""Near the end of a budget a plain answer is capped at what is expected, but not below this."""
_MARGIN_TOKENS = 64
"""A stream asks for more before it has used up what is held."""
_STEP_TOKENS = 256
_PAUSE_TOKENS = 16
_EVER_S = 1e9


@dataclass(slots=True)
class _Call:
    """The call that the hold was extended for last."""

    price: Price
    input_tokens: int
    cap: int | None
    """Most tokens the answer can have, over all choices."""
    cache_writes: bool
    """May the backend charge for writing its prompt cache?"""


class BudgetHold:
    """Implements `Hold`. Whoever has it calls `release` in the end, settled or not.

    Whoever relays a stream may skip `grow` up to `covers` output tokens. `output_limit`, when not None, is the most
    output tokens that may be asked of the backend (per answer): what is held does not pay for more.
    """

    __slots__ = (
        "_answers",
        "_call",
        "_expectations",
        "_over",
        "_paid",
        "_parts",
        "_patience_s",
        "_prices",
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
        prices: PriceList,
        expectations: Expectations,
        record: Record,
        request: CompletionRequest | None,
        patience_s: float,
    ) -> None:
        self.covers: float = float("inf")
        self.output_limit: int | None = None
        self.held = 0
        """Nano-dollars."""
        self._purse, self._prices, self._expectations = purse, prices, expectations
        self._record, self._request, self._patience_s = record, request, patience_s
        self._parts: dict[int, int] = {}
        """Place of an attempt on the record → nano-dollars held for it."""
        self._call: _Call | None = None
        self._paid = 0
        """Output tokens of the coming answer that are held for."""
        self._over = False
        self._answers = request.parallel if request else 1

    async def extend(self, backend: Backend, input_tokens: int) -> None:
        """Hold enough for a call of `backend` too. Raises BudgetExhausted."""
        self.covers, self.output_limit, self._call = float("inf"), None, None
        if self._purse is None:
            return
        price = self._prices.price(backend)
        if price is None and backend.kind != "simulated":
            self._record.note("unpriced", backend=backend.name)  # nothing can be held for it; its spend stays unknown
        if price is None or price.free:
            await self._resize(0)
            return
        if not self._purse.known:
            await self._look()
        expectation = self._expectations.of(self._record.tenant.team, backend.name)
        tokens = expectation.input_tokens(input_tokens)
        request = self._request
        writes = price.cache_write_5m is not None and (request is None or b"cache_control" in request.raw)
        self._call = _Call(price, tokens, self._cap(backend, tokens), writes)
        await self._open(self._call, expectation.output_tokens * self._answers)

    async def _look(self) -> None:
        assert self._purse is not None
        try:
            await self._purse.look(_EVER_S)
        except StateUnavailable:
            return  # taking meets it again and applies the budget's rule

    def _cap(self, backend: Backend, input_tokens: int) -> int | None:
        cap = self._request.max_output_tokens if self._request else None
        if backend.max_output_tokens is not None:
            cap = _least(backend.max_output_tokens, cap)
        if backend.window_tokens:
            cap = _least(max(1, backend.window_tokens - input_tokens), cap)
        return None if cap is None else cap * self._answers

    async def _open(self, call: _Call, expected: int) -> None:
        """Hold for an answer that is expected to take `expected` tokens."""
        assert self._purse is not None
        if self._record.stream:
            tokens = _least(expected, call.cap)
            await self._resize(self._cost(call, tokens))
            self._pays(call, tokens)
            return
        tokens = call.cap if call.cap is not None else _UNCAPPED_TOKENS * self._answers
        worst = self._cost(call, tokens)
        if self._purse.known and self._purse.remaining < worst * _AMPLE:
            capped = _least(max(expected, _LEAST_CAP_TOKENS * self._answers), call.cap)
            if capped < tokens:
                worst = self._cost(call, capped)
                self.output_limit = capped // self._answers
        await self._resize(worst)

    def _pays(self, call: _Call, tokens: int) -> None:
        self._paid = tokens
        self.covers = float("inf") if tokens == call.cap else tokens - _MARGIN_TOKENS

    def _cost(self, call: _Call, output_tokens: int) -> int:
        """Nano-dollars at most."""
        most = call.price.most(call.input_tokens, output_tokens, cache_writes=call.cache_writes)
        return pico_to_nano_up(most)

    async def _resize(self, part: int) -> None:
        """Hold `part` for the coming attempt beside what the earlier ones cost or may still cost."""
        assert self._purse is not None
        attempts = self._record.attempts
        parts = {len(attempts): part}
        for place, held in self._parts.items():
            if place < len(attempts):
                cost = attempts[place].cost_pico
                parts[place] = held if cost is None else pico_to_nano_up(cost)
        wanted = sum(parts.values())
        if wanted > self.held:
            await self._take(wanted - self.held, self._patience_s)
        elif wanted < self.held:
            self._purse.give(self.held - wanted)
            self.held = wanted
        self._parts = parts

    async def _take(self, units: int, patience_s: float) -> None:
        assert self._purse is not None
        await self._purse.take(units, self.held, self._record, patience_s)
        if self._over:  # settled or released by another task meanwhile
            self._purse.give(units)
        else:
            self.held += units

    async def grow(self, output_tokens: int) -> None:
        """The stream has `output_tokens` by now: see that what is held covers some more. Raises BudgetExhausted."""
        if output_tokens <= self.covers or self._call is None or self._over:
            return
        enough = output_tokens + _MARGIN_TOKENS
        for tokens in (max(self._paid * 3 // 2, output_tokens + _STEP_TOKENS), enough):
            if await self._pay(self._call, tokens, 0.0):
                return
        if output_tokens < self._paid:
            self.covers = min(output_tokens + _PAUSE_TOKENS, self._paid - 1)
        else:
            await self._pay(self._call, enough, _GROW_PATIENCE_S, last=True)

    async def _pay(self, call: _Call, tokens: int, patience_s: float, *, last: bool = False) -> bool:
        """Hold for an answer of `tokens` tokens. When that is too much: False, or BudgetExhausted on the `last` try."""
        tokens = _least(tokens, call.cap)
        place = max(self._parts)
        more = self._cost(call, tokens) - self._parts[place]
        if more > 0:
            try:
                await self._take(more, patience_s)
            except BudgetExhausted:
                if last:
                    raise
                return False
            self._parts[place] += more
        self._pays(call, tokens)
        return True

    def settle(self, cost_pico: int) -> None:
        """The request cost so much in all. Synchronous; the counters hear of it within the lease period."""
        if self._over or self._purse is None:
            return
        self._over = True
        self._purse.settle(self.held, pico_to_nano_up(cost_pico))
        self.held = 0
        for attempt in self._record.attempts:
            if attempt.outcome in ("ok", "escalated") and attempt.usage is not None and not attempt.usage.estimated:
                self._expectations.of(self._record.tenant.team, attempt.backend.name).learn(
                    attempt.input_tokens, attempt.usage, self._answers
                )

    def release(self) -> None:
        """Give everything back, unless it was settled."""
        if not self._over and self._purse is not None:
            self._over = True
            self._purse.give(self.held)
            self.held = 0


def _least(tokens: int, cap: int | None) -> int:
    return tokens if cap is None else min(tokens, cap)
