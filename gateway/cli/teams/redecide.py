"""Decides recorded requests again, under other policies, with the router itself.

The ledger has no prompts. It has a request's tokens, traffic class and difficulty, but it does not say whether the
grader abstained. So several grades of the prompt are possible. The present policy decides the request with each of
these grades. Only grades that lead to the recorded backend are used with the new policy. If no grade leads to the
recorded backend, the request is not decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gateway.backends.fleet import Fleet
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.policy import Policy
from gateway.domain.protocols import ModelPrices
from gateway.domain.request import CompletionRequest, Turn
from gateway.domain.routing.route import ContextEstimate, Grade, Route
from gateway.domain.tenant import Key, Tenant
from gateway.errors import GatewayError
from gateway.ledger.rows import Row
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from gateway.routing.strategy.plan import Plan

OUTSIDE = 0.5
"""The difficulty that the grader gives to requests with tools, images or files, from which it always abstains."""
NOT_ROUTED = ("openai_embeddings", "openai_other")
_NEEDS = {"tools": "tools", "image": "vision", "schema": "json_schema"}
"""Needs in a traffic class → the capability that a backend must have."""


class RecordedGrader(Grader):
    """A grader that always returns a recorded grade, whatever the text is."""

    recorded = Grade(OUTSIDE, abstained=True)

    def grade_turns(
        self, turns: Sequence[Turn], needs: frozenset[str] = frozenset(), owner: str | None = None
    ) -> Grade:
        return self.recorded


@dataclass(frozen=True, slots=True)
class Request:
    """A recorded request: the rows of its attempts, in order. Rows of background checks are left out."""

    rows: tuple[Row, ...]

    @property
    def served(self) -> Row:
        """The row of the answer that the client got; if there is none, the last row."""
        return next((row for row in reversed(self.rows) if row.outcome in ("ok", "interrupted")), self.rows[-1])

    @property
    def cost_pico(self) -> int | None:
        """The cost of all attempts in pico-dollars. None if the price of an attempt is unknown. The exception is a
        failed attempt without a price: it counts as 0."""
        costs = [row.cost_pico for row in self.rows if row.outcome != "failed" or row.cost_pico is not None]
        return None if None in costs else sum(cost or 0 for cost in costs)


class Verdict(NamedTuple):
    """The cost that a request would have had under the new policy, in pico-dollars. `low` and `high` are equal if
    everything is known."""

    low: int | None
    high: int | None
    backends: tuple[str, ...] = ()
    """The backends that may have served. Empty if no decision was made again."""
    unknown: str = ""
    """Why the request was not decided again. Its recorded cost is used. Empty if it was decided."""
    refused: str = ""
    """The code of the error with which the new policy refuses the request."""


class Redecider:
    """Decides recorded requests of teams under their present and their new policies."""

    def __init__(
        self,
        backends: Sequence[Backend],
        prices: ModelPrices,
        plans: Sequence[Plan],
        closed: Callable[[str], frozenset[str]],
    ) -> None:
        """`closed(team)`: returns the names of the backends that the team may not use."""
        self._grader = RecordedGrader.load()
        self._prices, self._closed = prices, closed
        fleet = Fleet(list(backends))
        self._router = Router(lambda: self._grader, prices, fleet, fleet.backends, plans=plans)
        self._tenants: dict[tuple[int, str], Tenant] = {}

    def decide(self, request: Request, old: Policy, new: Policy) -> Verdict:
        """Decide one request again, and return the result."""
        served, cost = request.served, request.cost_pico
        if served.attempt == 0:
            return _from_cache(served, new)
        if served.dialect in NOT_ROUTED:
            return Verdict(cost, cost, unknown="embeddings and passed-through calls are not routed")
        if cost is None:
            return Verdict(None, None, unknown="its recorded cost is unknown")
        grades = self._grades(request, old)
        if not grades:
            return Verdict(cost, cost, unknown="the present policy does not lead to the recorded backend")
        found = []
        for grade in grades:
            try:
                route = self._route(served, new, grade)
            except GatewayError as error:
                return Verdict(0, 0, refused=error.code)
            found.append(self._priced(request, route))
        costs = [cost for _, *both in found for cost in both]
        names = tuple(dict.fromkeys(name for name, _, _ in found))
        if any(cost is None for cost in costs):
            return Verdict(None, None, names, unknown="a chosen backend has no price")
        known = [cost for cost in costs if cost is not None]
        return Verdict(min(known), max(known), names)

    def _grades(self, request: Request, old: Policy) -> list[Grade]:
        """The grades with which the present policy chooses the recorded backend. Usually this is one grade; it may be
        none."""
        first = request.rows[0]
        recorded = first.decided.split(",")[0] or first.backend
        return [grade for grade in possible(first.difficulty) if self._chosen(first, old, grade) == recorded]

    def _chosen(self, row: Row, policy: Policy, grade: Grade) -> str:
        try:
            route = self._route(row, policy, grade)
        except GatewayError:
            return ""
        return (route.observed or route.backends[0]).name

    def _route(self, row: Row, policy: Policy, grade: Grade) -> Route:
        self._grader.recorded = grade
        usage = row.usage
        estimate = ContextEstimate(usage.all_input + row.trimmed_tokens, usage.all_input)
        return self._router.decide(_request(row), self._tenant(policy, row.key_id), estimate, row.session)

    def _tenant(self, policy: Policy, key: str) -> Tenant:
        name = id(policy), key  # the tenant keeps the policy alive, so no other object gets its id
        if name not in self._tenants:
            self._tenants[name] = Tenant(Key(key, policy.team), policy, closed=self._closed(policy.team))
        return self._tenants[name]

    def _priced(self, request: Request, route: Route) -> tuple[str, int | None, int | None]:
        """The name of the first backend of `route`, and the lowest and highest cost in pico-dollars. If this is the
        recorded backend, both costs are the recorded cost."""
        first = route.backends[0]
        if first.name == request.rows[0].backend:
            return first.name, request.cost_pico, request.cost_pico
        return first.name, *expected(route, request.served.usage, self._prices)


def possible(difficulty: float | None) -> tuple[Grade, ...]:
    """The grades that a request with this recorded difficulty may have had. If no difficulty was recorded, these are
    the two extremes: the easiest prompt, and a prompt from which the grader abstains."""
    if difficulty == OUTSIDE:
        return (Grade(OUTSIDE, abstained=True),)
    known = 0.0 if difficulty is None else difficulty
    return Grade(known), Grade(known, abstained=True)


def expected(route: Route, usage: Usage, prices: ModelPrices) -> tuple[int | None, int | None]:
    """The lowest and highest cost of the same tokens on `route`, in pico-dollars. If the route may escalate, the cost
    of the second call is multiplied by its probability."""
    first = route.backends[0]
    low, high = elsewhere(prices.price(first), usage)
    if route.escalate_to is None:
        return low, high
    adequacy = next((one.adequacy for one in route.considered if one.backend == first.name), None)
    share = 1.0 if adequacy is None else 1 - adequacy
    then_low, then_high = elsewhere(prices.price(route.escalate_to), usage)
    return _plus(low, then_low, share), _plus(high, then_high, share)


def elsewhere(price: Price | None, usage: Usage) -> tuple[int | None, int | None]:
    """The lowest and highest cost of the same tokens at another backend, in pico-dollars. It is unknown how much of the
    prompt this backend would have had in its cache. One cost assumes no cached tokens, the other the recorded number.

    Fees in addition to tokens are not included.
    """
    if price is None:
        return None, None
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    plain = replace(usage, input_tokens=usage.input_tokens + written, cache_write_5m_tokens=0, cache_write_1h_tokens=0)
    warm = replace(plain, service_tier="", fees=())
    cold = replace(warm, input_tokens=warm.input_tokens + warm.cached_tokens, cached_tokens=0)
    both = price.cost(warm), price.cost(cold)
    return min(both), max(both)


def grouped(rows: Iterable[Row]) -> Iterable[Request]:
    """Group `rows` by request. The rows must be sorted by request."""
    group: list[Row] = []
    for row in rows:
        if group and group[0].request_id != row.request_id:
            yield Request(tuple(group))
            group = []
        group.append(row)
    if group:
        yield Request(tuple(group))


def _from_cache(row: Row, new: Policy) -> Verdict:
    cache = new.cache
    off = {"exact": False, "semantic": not cache.semantic.enabled, "join": cache.join == "none"}
    if cache.enabled and not off.get(row.cache, False):
        return Verdict(0, 0, ("cache",))
    unknown = "its cost without the cache is unknown" if row.saved_pico is None else ""
    return Verdict(row.saved_pico, row.saved_pico, ("without the cache",), unknown)


def _plus(first: int | None, then: int | None, share: float) -> int | None:
    return None if first is None or then is None else round(first + share * then)


def _request(row: Row) -> CompletionRequest:
    """Make a request without text. Routing treats the made request like the recorded one."""
    need = _NEEDS.get(row.traffic_class.partition("/")[2].partition("/")[0])
    return CompletionRequest(
        id=row.request_id,
        dialect=row.dialect,
        raw=b"",
        body={},
        model=row.model_asked,
        turns=[Turn(0, "user", "")],
        stream=row.stream,
        max_output_tokens=row.usage.all_output,
        temperature=None,
        needs=frozenset(() if need is None else (need,)),
    )
