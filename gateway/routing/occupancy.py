"""Computes what one more request costs on a machine with a price per hour (the marginal cost). It costs almost nothing
when the machine is idle. It costs its full share of the machine's price when the machine is full.

The ledger divides a machine's hours among its attempts and its idle time. The cost of one *more* request is different:
the hours are paid already, and the request delays others only when the machine is full. So

    price per token = machine_hour_usd / (3600 · tokens per second) · max(IDLE_SHARE, C(c, a))

C is the probability that a new request has to wait, if the machine has c places and a of them are in use on average
(Erlang's formula for delayed calls, 1917). If a ≥ c, C is 1. Then the machine costs its full price, and backends below
this price are chosen first.

The tokens per second are the throughput that was measured when the machine was full. Without this measurement, they are
the throughput of the last 15 minutes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.routing.load import Load
from gateway.domain.units import PICO_PER_USD

IDLE_SHARE = 0.02
"""Minimum share of the full price that a machine costs. Because of it, the cheaper one of two idle machines is chosen
first. A call that a commitment has paid costs the same share, for the same reason."""
_MOST_PLACES = 512
"""Maximum number of places (requests that a machine serves at the same time) for which Erlang's formula is computed.
With more places, a new request is assumed to wait only if all places are in use.
"""


def expected_cost(
    backend: Backend,
    price: Price,
    input_tokens: int,
    output_tokens: int,
    *,
    warm_tokens: int = 0,
    writes: bool = False,
    load: Load | None,
) -> int:
    """The expected cost of one call in pico-dollars. If the backend is a machine, its price depends on its `load`.
    `warm_tokens`: input tokens that are probably in the prompt cache. `writes`: whether the rest of the input is
    written to this cache."""
    if load is not None and backend.price is not None and backend.by_the_hour:
        price = at_load(price, float(backend.price.machine_hour_usd or 0), load)
    return cost_of(price, input_tokens, output_tokens, warm_tokens=warm_tokens, writes=writes)


def cost_of(price: Price, input_tokens: int, output_tokens: int, *, warm_tokens: int, writes: bool) -> int:
    """The cost of one call at `price` in pico-dollars. The arguments are those of `expected_cost`."""
    warm = min(warm_tokens, input_tokens) if price.tier(input_tokens).cached_input is not None else 0
    if writes:
        written = input_tokens - warm
        return price.cost(Usage(cached_tokens=warm, cache_write_5m_tokens=written, output_tokens=output_tokens))
    if not warm:
        return price.plain(input_tokens, output_tokens)
    return price.cost(Usage(input_tokens - warm, cached_tokens=warm, output_tokens=output_tokens))


def paid_already(cost_pico: int) -> int:
    """The marginal cost, in pico-dollars, of a call that is already paid by a commitment. `cost_pico`: the cost of the
    call at its price."""
    return max(1, round(cost_pico * IDLE_SHARE)) if cost_pico else 0


def priced_by_load(backend: Backend, load: Load | None) -> bool:
    """Return whether the price of a call depends on load. This is so if the backend is a machine that is paid by the
    hour, and its load is known."""
    return load is not None and backend.by_the_hour


def at_load(price: Price, hour_usd: float, load: Load) -> Price:
    """The price of each token of one more request, on a machine with this `load`; never 0. `hour_usd`: the machine's
    price per hour."""
    factor = max(IDLE_SHARE, congestion(load))
    if load.full_tokens_per_second and price.output:
        factor *= hour_usd * PICO_PER_USD / 3600 / load.full_tokens_per_second / price.output
    return replace(price, input=max(1, round(price.input * factor)), output=max(1, round(price.output * factor)))


def congestion(load: Load) -> float:
    """The probability, 0..1, that one more request has to wait or makes another request wait."""
    if load.full:
        return 1.0
    if load.capacity is None:
        return 0.0
    return waiting_share(max(1, int(load.capacity)), round(load.running, 1))


@lru_cache(maxsize=4096)
def waiting_share(places: int, in_use: float) -> float:
    """Erlang's C(c, a): the share of requests that must wait. c is `places`; the offered load a is `in_use`."""
    if in_use >= places:
        return 1.0
    if in_use <= 0 or places > _MOST_PLACES:
        return 0.0
    blocked = 1.0  # Erlang's B, by its recursion over the places
    for count in range(1, places + 1):
        blocked = in_use * blocked / (count + in_use * blocked)
    used = in_use / places
    return blocked / (1 - used + used * blocked)
