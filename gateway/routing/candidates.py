"""Finds the backends that can serve a request, and the reasons why others cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gateway.dialects.registry import translators
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.policy import DataPolicy
from gateway.domain.prompt_cache import rules_of
from gateway.domain.protocols import BackendState, FleetView, MarginalPrices, PriceList, SessionView
from gateway.domain.request import DialectName
from gateway.domain.routing.route import Considered, ContextEstimate, Prefix
from gateway.errors import BadRequest, ContextTooLong, Forbidden, GatewayError, NoAdequateBackend
from gateway.routing import occupancy
from gateway.routing.lengths import PRIOR_TOKENS

Cause = Literal["", "unknown", "dialect", "data", "tier", "capability", "window", "health", "busy"]


@dataclass(slots=True)  # faster to make than a named tuple
class Demand:
    """The requirements of a request."""

    dialect: DialectName
    needs: frozenset[str]
    input: ContextEstimate
    output_tokens: int
    """Expected output tokens, for computing the cost."""
    output_most: int | None
    """The client's limit of output tokens, which must fit into the window."""
    data: DataPolicy
    tier: str = ""
    prefix: Prefix | None = None
    """The conversation to which the request belongs."""
    marked: bool = False
    """Whether the client marks parts of the prompt for the backend's cache."""
    may_mark: bool = False
    """Whether the gateway may add cache marks, at backends that accept them."""


MEASURED_S = 60.0
"""Seconds for which a measured delay of a backend is used."""


class Candidate(NamedTuple):
    """A backend that was considered for a request. `excluded`: the reason why it cannot serve the request; empty if it
    can. `cost_pico`: expected cost in pico-dollars; None: the backend has no price."""

    backend: Backend
    excluded: str = ""
    cause: Cause = ""
    cost_pico: int | None = None
    list_pico: int | None = None
    """The expected cost if no token is cached, and if the prices of machines do not depend on their load. None if that
    is equal to `cost_pico`."""
    delay_ms: float = 0.0
    """Time to the backend's first byte, in milliseconds. Among members of a model group with equal costs, the member
    with the lowest time is called."""
    ledger_pico: int | None = None
    """The expected cost in the ledger, if a commitment has paid the call already and `cost_pico` is lower therefore."""

    @property
    def booked_pico(self) -> int | None:
        """The expected cost as the ledger and budgets count it, in pico-dollars. Ceilings limit this cost."""
        return self.cost_pico if self.ledger_pico is None else self.ledger_pico

    @property
    def worth_pico(self) -> int | None:
        """The cost by which models are ranked, in pico-dollars. It does not depend on cached tokens or on the load of
        machines."""
        return self.cost_pico if self.list_pico is None else self.list_pico


def examine(
    backends: Sequence[Backend],
    demand: Demand,
    prices: MarginalPrices,
    fleet: FleetView,
    sessions: SessionView | None = None,
) -> list[Candidate]:
    """Examine all backends. Returns a candidate for each, with its expected cost. A candidate that cannot serve the
    request contains the first reason that was found."""
    found = []
    for backend in backends:
        cause, excluded = against(backend, demand)
        state = None
        if not cause:
            state = fleet.state(backend)
            if not state.available:
                cause = "busy" if state.limited else "health"
                excluded = state.reason or "unavailable after failures"
            elif state.headroom == 0.0:
                cause, excluded = "busy", "its provider's rate limit is used up for the moment"
            elif state.wait_s > backend.spill_after:
                cause, excluded = "busy", f"a request would wait about {state.wait_s:.1f} s for its turn there"
        cost = plain = expected_cost(backend, demand, prices)
        if state is not None and (demand.prefix is not None or occupancy.priced_by_load(backend, state.load)):
            cost = expected_cost(backend, demand, prices, state, sessions)
        booked = None
        if cost is not None and prices.prepaid(backend):
            booked, cost = cost, occupancy.paid_already(cost)
        delay_ms = _delay_ms(state) if state is not None and backend.model_group else 0.0
        found.append(Candidate(backend, excluded, cause, cost, None if cost == plain else plain, delay_ms, booked))
    return found


def _delay_ms(state: BackendState) -> float:
    """The time to the backend's first byte in milliseconds, as this worker measured it in the last minute. Without a
    measurement: 0 if no call is in progress, so that one call measures it; otherwise infinite."""
    if state.first_byte_ms is not None and state.measured_s < MEASURED_S:
        return state.first_byte_ms
    return math.inf if state.in_flight else 0.0


def expected_cost(
    backend: Backend,
    demand: Demand,
    prices: PriceList,
    state: BackendState | None = None,
    sessions: SessionView | None = None,
) -> int | None:
    """The expected cost of a call in pico-dollars; None if the backend has no price. The price is lower for input that
    is probably in the prompt cache (`sessions`). A machine's price depends on its load."""
    price = prices.price(backend)
    if price is None:
        return None
    tokens, output, most = demand.input.tokens, demand.output_tokens, backend.max_output_tokens
    if most is not None and output > most:
        output = most
    if state is None and demand.prefix is None:
        return price.plain(tokens, output)
    warm = sessions.warm_tokens(demand.prefix, backend, tokens) if sessions and demand.prefix else 0
    load = state.load if state else None
    writes = demand.prefix is not None and writes_cache(backend, price, demand)
    return occupancy.expected_cost(backend, price, tokens, output, warm_tokens=warm, writes=writes, load=load)


def writes_cache(backend: Backend, price: Price, demand: Demand) -> bool:
    """Return whether the backend charges for writing to its prompt cache. Only the part of the prompt that is not
    cached yet is written."""
    rules = rules_of(backend.model)
    if price.cache_write_5m is None or demand.input.tokens < rules.least_tokens:
        return False
    if backend.facts.caches_marked_only:
        return demand.marked or (demand.may_mark and backend.takes_marks)
    return rules.kind == "newest"


def against(backend: Backend, demand: Demand) -> tuple[Cause, str]:
    """The reason why the backend cannot serve the request, as (cause, text); both are empty if it can. Health and load
    are not considered here."""
    data = demand.data
    if not translators(demand.dialect, backend.spoken):
        return "dialect", f"it cannot be asked in the dialect {demand.dialect}"
    if data.hosted == "forbidden" and (hosted := backend.why_hosted):
        return "data", f"the policy forbids hosted backends: {hosted}"
    if data.regions and (region := backend.data_region) not in data.regions:
        where = f"region {region}" if region else "no region is given for it"
        return "data", f"{where}; the policy allows {', '.join(data.regions)}"
    if demand.tier and backend.tier != demand.tier:
        return "tier", f"its tier is {backend.tier}; the request asks for {demand.tier}"
    if demand.needs and (missing := demand.needs - backend.capabilities):
        return "capability", f"lacks {', '.join(sorted(missing))}"
    if (window := backend.window_tokens) is not None:
        answer = reserved_output(backend, demand)
        if demand.input.tokens + answer > window and (least := demand.input.least) and least + answer > window:
            return "window", f"{least + answer} tokens are needed, its window holds {window}"
    return "", ""


def may_go_to(backend: Backend, data: DataPolicy) -> bool:
    """Return whether the policy's data rule allows sending prompts to this backend."""
    return not (data.hosted == "forbidden" and backend.hosted) and (
        not data.regions or backend.data_region in data.regions
    )


def reserved_output(backend: Backend, demand: Demand) -> int:
    """The tokens of the context window that are reserved for the answer: the client's limit or, without one, the
    expected length. A learned length is limited to `PRIOR_TOKENS`, so that it never causes a refusal."""
    wanted = demand.output_most
    if wanted is None:
        wanted = min(demand.output_tokens, PRIOR_TOKENS)
    return min(wanted, backend.max_output_tokens or wanted)


def refusal(
    candidates: Sequence[Candidate], missing: Sequence[str] = (), input_field: str = "messages"
) -> GatewayError:
    """The error for a request that no candidate can serve. It tells the client what to change."""
    allowed = [each for each in candidates if each.cause not in ("data", "dialect", "tier")]
    if candidates and not missing and all(each.cause == "data" for each in candidates):
        return Forbidden(
            f"The policy's data rule excludes every backend for this request: {_reasons(candidates)}. "
            "Ask for another model, or have data.hosted or data.regions in the team's policy changed."
        )
    if candidates and not missing and all(each.cause == "dialect" for each in candidates):
        return BadRequest(
            f"The model cannot be asked at this endpoint: {_reasons(candidates)}. Ask for another model.", param="model"
        )
    if allowed and all(each.cause == "window" for each in allowed):
        return ContextTooLong(
            f"The request does not fit into any backend's window: {_reasons(allowed)}. "
            f"Shorten {input_field} or lower the limit of output tokens.",
            param=input_field,
        )
    unknown = [f"{name} (no backend of this name is configured)" for name in missing]
    reasons = "; ".join(filter(None, [_reasons(candidates), *unknown]))
    return NoAdequateBackend(
        f"No configured backend can serve this request: {reasons}. Change what the request needs, "
        "or the backends in gateway.yaml or the candidates in the team's policy.",
        retry_after_s=1.0 if any(each.cause == "health" for each in candidates) else None,
    )


def _reasons(candidates: Sequence[Candidate]) -> str:
    return "; ".join(f"{each.backend.name} ({each.excluded})" for each in candidates)


def considered(candidate: Candidate, adequacy: float | None = None) -> Considered:
    return Considered(candidate.backend.name, candidate.excluded, adequacy, candidate.cost_pico)
