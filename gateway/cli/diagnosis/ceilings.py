"""Notes of `thriftgate check` about model names. A note says that the gateway calls a backend that costs more than the
named model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.policy import ModelRule, Policy
from gateway.domain.protocols import ModelPrices
from gateway.errors import UnknownModel
from gateway.routing.aliases import resolve
from gateway.routing.ceiling import named_model

_INPUT, _OUTPUT = 1000, 250
"""Tokens of the request for which prices are compared."""


def notes(backends: Sequence[Backend], policies: Mapping[str, Policy], prices: ModelPrices) -> list[str]:
    """A sentence about each model name in a policy whose requests may cost more than the client expects. The cost of
    the named model is compared with the cost of the selected backends, or of the rule's reference."""
    return [
        f"team {team}: models.{name}: {note}"
        for team, policy in policies.items()
        for name in policy.models
        if (note := _of(name, policy, backends, prices))
    ]


def _of(name: str, policy: Policy, backends: Sequence[Backend], prices: ModelPrices) -> str:
    ceiling = _own_cost(name, backends, prices)
    try:
        found = resolve(name, policy, backends)
    except UnknownModel:
        return ""
    costs = {each.name: cost for each in found.backends if (cost := _cost(prices.price(each))) is not None}
    if ceiling is None or not costs or len(costs) < len(found.backends):
        return ""
    above = {backend: cost for backend, cost in costs.items() if cost > ceiling}
    if len(above) == len(costs):
        least = min(costs, key=lambda backend: costs[backend])
        times = f"{least} costs {costs[least] / ceiling:.1f} times as much as the model that the client names"
        if found.rule is None and len(costs) == 1:
            return f"{times}; the alias is followed all the same."
        return f"{times}, and nothing here is cheaper; it serves, and its rows are marked above_ceiling."
    reference = found.rule.reference if isinstance(found.rule, ModelRule) else None
    if reference in above:
        return (
            f"its reference {reference} costs more than the model that the client names: it serves only after failures."
        )
    return ""


def _own_cost(name: str, backends: Sequence[Backend], prices: ModelPrices) -> int | None:
    """The cost of a usual request to the model `name`, in pico-dollars. None if the price of the model is unknown, or
    if the operator invented the name."""
    named = named_model(name, backends, prices)
    if named is None:
        return None
    own: Iterator[int | None] = (_cost(prices.price(each)) for each in named.backends)
    known = [cost for cost in own if cost is not None]
    return min(known) if known else (_cost(prices.listed(name)) if not named.backends else None)


def _cost(price: Price | None) -> int | None:
    return None if price is None else price.plain(_INPUT, _OUTPUT)
