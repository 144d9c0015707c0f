"""Limits the cost of routed calls. The ceiling is the expected cost of the model that the client named, and no routed
call may be expected to cost more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gateway.domain.backend import RANK, Backend
from gateway.domain.money.price import Price
from gateway.domain.prompt_cache import rules_of
from gateway.domain.protocols import FleetView, ModelPrices, SessionView
from gateway.routing import occupancy
from gateway.routing.candidates import Candidate, Demand, examine

_PASSING = ("", "health", "busy")
"""Causes of exclusion that are temporary. They do not show that a backend is unable to serve such requests."""
_VENDOR = re.compile(r"^(?:[a-z]{2,6}\.)?(?:anthropic|amazon|meta|mistral|openai|google|cohere|deepseek|qwen)\.")
"""Prefixes of model names at Bedrock: the vendor, after the region of an inference profile if there is one, as in
`eu.anthropic.`."""
_VERSION = re.compile(r"(?:-v\d+:\d+|[-@](?:\d{4}-\d{2}-\d{2}|\d{8})|-latest|:free|\[\w+\])$")


class Ceiling(NamedTuple):
    """The highest cost that one call may have in the ledger: the cost of the model that the client named. `cost_pico`:
    the cost in pico-dollars. None: the model has no price; then a higher tier counts as more expensive."""

    cost_pico: int | None
    rank: int = 0
    """Rank of the named model's tier."""

    def exceeded_by(self, candidate: Candidate, calls: float = 1.0) -> bool:
        """Return whether `calls` calls of `candidate` are expected to cost more than the ceiling. If the ceiling is in
        pico-dollars, a candidate without a price never exceeds it."""
        if self.cost_pico is None:
            return RANK[candidate.backend.tier] > self.rank
        cost = candidate.booked_pico
        return cost is not None and round(cost * calls) > self.cost_pico

    def allows(self, first: Candidate, then: Candidate, share: float) -> bool:
        """Return whether the expected cost stays within the ceiling, if every request calls `first` and the share
        `share` of requests also calls `then`."""
        if self.cost_pico is None or first.booked_pico is None or then.booked_pico is None:
            return True
        return round(first.booked_pico + share * then.booked_pico) <= self.cost_pico


class NamedModel(NamedTuple):
    """A model that a client may name. `backends`: the backends that serve it; empty: only its list price is known."""

    model: str
    backends: tuple[Backend, ...] = ()


def named_model(asked: str, backends: Sequence[Backend], prices: ModelPrices) -> NamedModel | None:
    """The model named `asked`, whose cost is the limit. None if `asked` is `auto`, or if neither a backend nor a list
    price is known for it."""
    if asked == "auto":
        return None
    listed = prices.listed(asked)
    found = [each for each in backends if asked in (each.name, each.model, each.model_group)]
    if not found:  # a version of another date may have another price
        similar = [each for each in backends if same_model(each.model, asked)]
        found = [each for each in similar if _alike(listed, prices.listed(each.model))]
    return NamedModel(asked, tuple(found)) if found or listed is not None else None


def _alike(one: Price | None, other: Price | None) -> bool:
    return one is None or other is None or (one.input, one.output) == (other.input, other.output)


def same_model(one: str, other: str) -> bool:
    """Return whether two names mean the same model. The provider's prefix, the version's date and dots are ignored."""
    return _bare(one) == _bare(other)


def _bare(name: str) -> str:
    bare = _VENDOR.sub("", name.lower().rsplit("/", 1)[-1])
    while (shorter := _VERSION.sub("", bare)) != bare:
        bare = shorter
    return bare.replace(".", "-")


def ceiling_of(
    named: NamedModel,
    candidates: Sequence[Candidate],
    demand: Demand,
    prices: ModelPrices,
    fleet: FleetView,
    sessions: SessionView,
) -> Ceiling | None:
    """The cost limit of one request: its cost at the cheapest backend of the named model.

    If no backend serves that model, the limit is the cost at the model's list price; None if there is no list price. As
    many input tokens then count as cached as the best backend has in its cache.
    """
    if not named.backends:
        cost = _listed(named.model, demand, prices, sessions)
        return None if cost is None else Ceiling(cost)
    names = {each.name for each in named.backends}
    own = [each for each in candidates if each.backend.name in names]
    if not own:
        own = examine(named.backends, demand, prices, fleet, sessions)
    own = [each for each in own if each.cause in _PASSING] or own
    known = [each.booked_pico for each in own if each.booked_pico is not None]
    rank = max([RANK[each.backend.tier] for each in own])
    return Ceiling(min(known) if known else None, rank)


def _listed(model: str, demand: Demand, prices: ModelPrices, sessions: SessionView) -> int | None:
    price = prices.listed(model)
    if price is None:
        return None
    tokens, output, prefix = demand.input.tokens, demand.output_tokens, demand.prefix
    if prefix is None:
        return price.plain(tokens, output)
    rules = rules_of(model)
    writes = price.cache_write_5m is not None and tokens >= rules.least_tokens
    writes = writes and (rules.kind == "newest" or (rules.kind == "marks" and demand.marked))
    return occupancy.cost_of(price, tokens, output, warm_tokens=sessions.warmest(prefix, tokens), writes=writes)
