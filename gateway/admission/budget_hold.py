"""Holds money for one request before each call: enough for the longest answer that the call can have.

If the budget allows this hold, the call is sent as the client wrote it. Otherwise the output of a text answer is
capped, so that the held money pays for it. Calls that cannot be capped wait until holds of other requests end, or
are refused. So calls in progress cost at most the rest of the budget, as far as the input is estimated correctly.

The steps of a request: `Budgets.refuse_exhausted` (`budgets.py`) checks that no budget is spent. `extend` holds
money before each call. `grow` holds more money while an answer without a limit streams. `settle` books the actual
cost. `release` ends what is still held. `PaidAnswer` in `gateway/settlement.py` calls `settle` and `release`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gateway.admission import output_bound
from gateway.admission.call_cost import CallCost
from gateway.admission.meter import Dollars
from gateway.admission.money_source import MoneySource
from gateway.admission.no_hold import EVER
from gateway.admission.output_forecast import OutputForecasts
from gateway.dialects.facts import FACTS
from gateway.dialects.requests.surcharges import held_price, surcharges
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.record import FOR_SESSIONS, Attempt, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached
from gateway.errors import BudgetExhausted, StateUnavailable

PATIENCE_S = 10.0
"""Seconds for which a request waits for the holds of other requests to end. After that, the budget counts as too small
for all of them together."""
_GENEROUS_PATIENCE_S = 5.0
"""Maximum seconds for which a request waits until the budgets allow a high cap on its output tokens. Hardly any answer
reaches such a cap. After this time, the request gets a lower cap."""
_LEAST_TOKENS = 16
"""Minimum number of tokens to which an answer is capped. A call with fewer tokens is not worth its cost."""
_STEP_TOKENS = 256
_MARGIN_TOKENS = 64
"""While an answer without an upper bound streams, more money is held as soon as only this number of tokens is left of
those that are paid for."""
_SLACK_TOKENS, _SLACK_SHARE = 16, 2
"""The number of delivered tokens is estimated. The answer counts as longer than its cap if the estimate exceeds the cap
by `_SLACK_TOKENS` plus the cap divided by `_SLACK_SHARE`. The estimate assumes four characters per token, but some
texts have six."""
_MOST_FRAMES = 8
"""Most of a stream's bytes are not text. So the next look at the delivered text may wait for up to this number of times
the bytes of the tokens that are left, if the stream so far had twice as many bytes per token."""
_REPORTED_SHARE = 16
"""The backend's own count of tokens may exceed the cap by 1/`_REPORTED_SHARE` of the cap, because some backends count
the token that ends an answer."""
_CHARGED = frozenset(("service_tier", "speed", "inference_geo", "tools", "web_search_options", "search_parameters"))
"""Request fields because of which tokens can cost more than usual. A model that always searches the web can cost more
even if the request has none of these fields."""
_EVER_S = 1e9


class BudgetHold:
    """Implements `Hold` on one group of budgets, or on the limit of the request itself. The owner must call `release`
    at the end.

    `covers`: number of tokens that the held money pays for. Call `grow` before `Attempt.seen` exceeds it.
    `output_limit`: maximum output tokens that the gateway may ask a backend for; None: no limit.
    """

    output_limit: int | None = None
    covers = EVER
    held = 0
    """Units of the group's meter that are held."""
    _call: CallCost | None = None
    _known = _over = False
    """`_known`: whether `_call` belongs to the last entry of `_parts`. `_over`: whether the hold has ended."""
    _place: int | None = None
    """Index of the attempt whose answer is served; None if that is the last attempt."""

    def __init__(
        self,
        group: MoneySource,
        expectations: OutputForecasts,
        record: Record,
        request: CompletionRequest | None,
        patience_s: float,
    ) -> None:
        self._group, self._expectations = group, expectations
        self._record, self._request, self._patience_s = record, request, patience_s
        self._parts: dict[int, int] = {}
        """Index of an attempt on the record → units that are held for this attempt."""
        self._calls: dict[int, CallCost] = {}
        """Index of an attempt → the data of the call from which the attempt's hold was computed."""
        self._limits: dict[int, tuple[float, int | None]] = {}
        """Index of an attempt → its (`covers`, `output_limit`). Only for attempts that were followed by another
        attempt."""
        self._answers = request.parallel if request else 1

    def left_nano(self) -> int | None:
        group = self._group
        return max(self.held, group.left) if group.bounds and isinstance(group.meter, Dollars) else None

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        """Hold additional money for a call of `backend`. Raises BudgetExhausted.

        `input_tokens`: input of the call, including `attached`. `attached`: tokens of images, sound and documents.
        `marked`: whether the gateway marks the prompt for the backend's cache.
        """
        group = self._group
        if self._known or self._call is not None:
            self._begin_anew()
        price = self._price(backend)
        if price is None or (not price.output and price.free):
            await self._resize(0, 0.0)
            return
        if group.soft:
            await self._look()
            group.note_soft(self._record)
        expectation = self._expectations.of(self._record.tenant.team, backend.name)
        request = self._request
        if attached is NOTHING_ATTACHED:
            plain = expectation.input_tokens(input_tokens)
        else:
            whole = expectation.input_tokens(input_tokens, attached.kind, attached.total)
            plain = max(0, whole - attached.image - attached.audio)
        most = output_bound.most_output(backend, request, input_tokens - attached.total)
        self._call = call = CallCost(
            price,
            expectation,
            backend,
            input_tokens,
            attached,
            plain,
            max(most * self._answers, expectation.ignored),
            output_bound.may_write_cache(price, backend, request, marked=marked),
            output_bound.may_be_media(price, request),
        )
        if group.bounds and not (self._parts or self._record.attempts or self._over):  # usual: the request's first call
            worst = call.cost(call.most)
            if group.try_take(worst, self._record):
                self.held = self._parts[0] = worst
                self._known, call.paid, self._calls[0] = True, call.most, call
                self.covers = self._ends(call)
                return
        await self._look()
        await self._open(call)
        self._calls[max(self._parts)] = call

    def _price(self, backend: Backend) -> Price | None:
        """The price from which the hold is computed; None if the price is unknown. Raises BudgetExhausted if a hard
        budget requires a price."""
        price = self._group.price(backend)
        if price is None:
            if not backend.simulated:
                self._group.refuse_unpriced(backend)
                self._record.note("unpriced", backend=backend.name)  # nothing can be held; its spend stays unknown
            return None
        request = self._request
        if request is None:
            return price
        if _CHARGED.isdisjoint(request.body) and "search" not in request.model:
            return price.unasked()
        if price.free:
            return price
        wanted = surcharges(request, backend.facts.dialects[0])
        if wanted is not None and wanted.fees:
            self._group.refuse_unpriced(backend, " and ".join(wanted.fees))
        held = held_price(price, wanted)
        if held is None:
            self._group.refuse_unpriced(backend, f"service tier {wanted.service_tier}" if wanted else "")
            held = price.dearest()
        return held

    def _begin_anew(self) -> None:
        """Prepare for another attempt. The data of the previous attempt are kept, because the client may still get the
        answer of that attempt."""
        if self._known:
            self._limits[max(self._parts)] = self.covers, self.output_limit
        self.covers, self.output_limit, self._call, self._place, self._known = EVER, None, None, None, False

    async def _look(self) -> None:
        """Read the counters of the group, if they were never read. Units can be taken only after this."""
        if not self._group.known:
            with suppress(StateUnavailable):  # taking units fails again, and then the budget's rule is applied
                await self._group.look(_EVER_S)

    async def _open(self, call: CallCost) -> None:
        """Hold money for the longest possible answer. If the budget does not allow that, hold money for a shorter
        answer and cap the answer. If even this is refused, try again with the input that the backend usually counts,
        because no request is refused because of a few unusual ones."""
        if not self._group.bounds:
            tokens = min(call.expectation.output_tokens * self._answers, call.most)
            await self._resize(call.cost(tokens), self._patience_s)
            self._pays(call, tokens)
            return
        try:
            await self._first_offered(call)
        except BudgetExhausted:
            attached = call.attached
            usual = call.expectation.usual_input_tokens(call.counted, attached.total) - attached.image - attached.audio
            if usual >= call.input_tokens:
                raise
            call.input_tokens = max(0, usual)
            await self._first_offered(call)

    async def _first_offered(self, call: CallCost) -> None:
        """Hold money for the longest answer that the budget allows, of those in `_offers`. Raises BudgetExhausted."""
        refused: BudgetExhausted | None = None
        for tokens, patience_s in self._offers(call):
            try:
                await self._resize(call.cost(tokens), patience_s)
            except BudgetExhausted as error:
                refused = error
                continue
            call.paid, call.capped = tokens, tokens < call.most
            self.output_limit = tokens // self._answers if call.capped else None
            self.covers = self._ends(call)
            return
        assert refused is not None
        raise refused

    def _offers(self, call: CallCost) -> Iterator[tuple[int, float]]:
        """Yield answer lengths to try, longest first: (output tokens over all choices, seconds to wait for other holds
        to end). The first length is hardly ever needed, so it is not waited for. Lower caps cut more answers short, so
        a short wait precedes caps below `generous`, and the whole patience those below `floor`, or a refusal."""
        group = self._group
        if not output_bound.can_be_capped(self._request) or call.expectation.ignored:
            yield call.most, self._patience_s
            return
        yield call.most, 0.0
        most, answers = call.most, self._answers
        floor = min(output_bound.floor(call.expectation, call.backend) * answers, most)
        generous = min(output_bound.generous(call.expectation, call.backend) * answers, most)
        yield generous, min(_GENEROUS_PATIENCE_S, self._patience_s)
        if (left := call.affordable(group.remaining)) > floor:
            yield min(left, generous), 0.0
        if not group.truncates:
            yield floor, self._patience_s
            return
        if call.affordable(group.left) >= floor:
            yield floor, self._patience_s / 2
        least = _LEAST_TOKENS * answers
        yield min(max(call.affordable(group.remaining), least), floor), self._patience_s / 2
        yield min(max(call.affordable(group.left), least), floor), 0.0

    def _ends(self, call: CallCost) -> float:
        """The number of delivered tokens from which an answer counts as longer than the held money pays for. A backend
        may ignore the limit of the client or of the gateway."""
        if self._request is None or FACTS[self._request.dialect].opaque:
            return EVER
        return call.paid + _SLACK_TOKENS + call.paid // _SLACK_SHARE

    def _pays(self, call: CallCost, tokens: int) -> None:
        """Record that the held money pays for `tokens` output tokens of the call. If the answer becomes longer,
        `grow` holds more money.
        """
        call.paid = tokens
        if tokens >= call.most:
            self.covers = EVER
        elif tokens >= 4 * _MARGIN_TOKENS:
            self.covers = tokens - _MARGIN_TOKENS
        else:
            self.covers = tokens * 3 // 4 - 1  # a margin of a quarter, but at least one token

    async def _resize(self, part: int, patience_s: float) -> None:
        """Change the amount that is held for the request. `part`: units for the next attempt. The amounts for earlier
        attempts stay held. `patience_s`: maximum seconds to wait if other requests hold the missing units."""
        group, attempts = self._group, self._record.attempts
        parts = {len(attempts): part}
        for place, held in self._parts.items():
            if place < len(attempts):
                took = group.meter.of_attempt(attempts[place])
                parts[place] = held if took is None else took
        wanted = sum(parts.values())
        if wanted > self.held:
            await self._take(wanted - self.held, patience_s)
        elif wanted < self.held:
            group.give(self.held - wanted)
            self.held = wanted
        self._parts, self._known = parts, True

    async def _take(self, units: int, patience_s: float) -> None:
        group = self._group
        if not group.try_take(units, self._record):
            await group.take(units, self.held, self._record, patience_s)
        if self._over:  # another task has settled or released the hold
            group.give(units)
        else:
            self.held += units

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Hold more money if an answer in progress needs it. Raises BudgetExhausted.

        `output_tokens`: estimate from the delivered text. `seen`: maximum number of tokens that can have arrived so
        far.
        """
        call = self._call
        if seen <= self.covers or call is None or self._over:
            return
        ends = self._ends(call) if self._group.bounds else call.paid
        if output_tokens < ends:
            left = ends - output_tokens
            # a stream whose next bytes are nothing but text brings at most twice the tokens that it may have
            frames = min(seen // max(1, 2 * output_tokens), _MOST_FRAMES, (2 * ends - output_tokens) // left)
            self.covers = seen + left * max(1, frames)
            return
        wanted = max(call.paid * 3 // 2, output_tokens + _STEP_TOKENS)
        place = max(self._parts) if self._place is None else self._place
        more = call.cost(wanted) - self._parts[place]
        if more > 0:
            refused = await self._group.stretch(more, self.held, self._record)
            if refused is not None:
                raise refused
            self._add(place, more)
        call.paid = wanted
        self.covers = seen + wanted - output_tokens

    def _add(self, place: int, units: int) -> None:
        """Add `units` to the held units of the attempt with index `place`. The caller has already taken them from
        the budget.
        """
        if self._over:  # another task has settled or released the hold
            self._group.give(units)
        else:
            self.held += units
            self._parts[place] += units

    def follow(self, attempt: Attempt) -> None:
        """Apply `grow` and `covers` (number of tokens that the held money pays for) to `attempt`, whose answer the
        client gets. Call this if money is held for several attempts."""
        place = self._record.attempts.index(attempt)
        if place in self._limits and place in self._parts:
            self._call = self._calls.get(place)
            self.covers, self.output_limit = self._limits[place]
            self._place = place
        if attempt.ended_at is not None:  # all of it has arrived
            self.covers = EVER

    def settle(self, cost_pico: int, *, learn: bool = True) -> None:
        """Book the request's total cost (pico-dollars) and end the hold. `learn`: whether lengths of answers are
        learned from the attempts."""
        group, record = self._group, self._record
        if self._over:
            return
        self._over = True
        group.settle(self.held, group.meter.of_request(cost_pico, record))
        self.held = 0
        if learn and record.kind not in FOR_SESSIONS:
            attempts = record.attempts
            for place, call in self._calls.items():
                if place < len(attempts):
                    self._learn(attempts[place], call)

    def _learn(self, attempt: Attempt, call: CallCost) -> None:
        """Learn from `attempt` the ratio of the input counts, and the usual length of answers unless the cap has ended
        this one."""
        usage = attempt.usage
        if usage is None or usage.estimated or attempt.outcome not in ("ok", "escalated"):
            return
        expectation, output = call.expectation, usage.all_output
        limit = call.paid if call.capped else call.most
        if output > limit and output > limit + limit // _REPORTED_SHARE + _SLACK_TOKENS:
            expectation.ignored = max(expectation.ignored, output)
        elif expectation.ignored:  # reduced with every answer within its limit, and 0 after some dozen of them
            expectation.ignored = expectation.ignored * 3 // 4
        expectation.learn_input(call.counted, usage, call.attached.kind)
        if not call.capped or output < call.paid * 3 // 4:
            expectation.learn_output(usage, self._answers)

    def release(self) -> None:
        """End the hold without a cost. Does nothing if the hold was settled."""
        if not self._over:
            self._over = True
            self._group.give(self.held)
            self.held = 0
