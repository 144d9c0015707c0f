"""Orders backends that serve the same model. A conversation stays on the same replica as long as this replica is not
overloaded.

Method: consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016, arXiv:1608.01350). Each replica has
many points on a circle, and a conversation has one point. The conversation goes to the next replica clockwise whose
load is below `overload` times the mean. So no replica has much more than the mean load, and few conversations move when
a replica is added or removed. Requests with short prompts go to the replica with the lowest load.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from gateway.domain.backend import Backend

POINTS = 64
"""Number of points of each replica on the circle. With 64 points, the shares of traffic of the replicas differ by about
1 / √64."""
SHARED_TOKENS = 256
"""Minimum input tokens of a prompt for which a conversation stays on its replica. A shorter prompt goes to the replica
with the lowest load, because reading a short prompt again is fast."""
_LEAST_ROOM = 0.01
"""Minimum share of a replica's capacity that counts as usable, even if the provider's rate limit is used up."""


class Replica(NamedTuple):
    """A replica and its load."""

    backend: Backend
    outstanding: float = 0.0
    """Number of the replica's requests that are in progress or in its queue."""
    capacity: float = 1.0
    """Capacity of the replica, relative to the capacities of the other replicas."""
    headroom: float = 1.0
    """Share of the provider's rate limit that is left, 0..1."""

    @property
    def pressure(self) -> float:
        """The load, divided by the usable capacity. The usable capacity is the share that the provider's rate limit
        still allows."""
        return self.outstanding / self.room

    @property
    def room(self) -> float:
        return self.capacity * max(self.headroom, _LEAST_ROOM)


def group_of(backend: Backend) -> tuple[str, str, str]:
    """A value that is equal for interchangeable backends. Such backends have the same model, the same tier, and the
    same prices or hourly prices."""
    price = backend.price
    own = price is not None and bool(price.machine_hour_usd)
    return backend.model, backend.tier, "machine" if own else f"{backend.kind} {price!r}"


def order(
    replicas: Sequence[Replica], key: bytes, input_tokens: int, *, overload: float = 1.25, on_demand: float = 0.0
) -> list[Backend]:
    """The replicas in the order in which they should be called. `key`: identifies the conversation. `input_tokens`:
    length of the prompt. `overload`: maximum load of a replica, in multiples of the mean. `on_demand`: share of
    conversations (0 to 1) that use spot machines only as a fallback."""
    place = _place(key)
    if _keeps_off_spot(replicas, place, on_demand):
        steady = [each for each in replicas if not each.backend.spot]
        spot = [each for each in replicas if each.backend.spot]
        return [*_order(steady, place, input_tokens, overload), *_order(spot, place, input_tokens, overload)]
    return _order(replicas, place, input_tokens, overload)


def _order(replicas: Sequence[Replica], place: int, input_tokens: int, overload: float) -> list[Backend]:
    least = sorted(replicas, key=lambda each: (each.pressure, -each.headroom))
    if input_tokens < SHARED_TOKENS:
        return [each.backend for each in least]
    first = affine(replicas, place, overload)
    return [first.backend, *(each.backend for each in least if each is not first)]


def affine(replicas: Sequence[Replica], place: int, overload: float) -> Replica:
    """Choose the replica of the conversation at the point `place` (64 bits) of the circle. It is the next replica
    clockwise whose load is low enough: with one more request, at most `overload` times the mean."""
    known = {each.backend.name: each for each in replicas}
    bounds = _bounds(known, overload)
    points, names = circle(tuple(sorted(known)))
    at = bisect_right(points, place)
    for step in range(len(points)):
        name = names[(at + step) % len(points)]
        if known[name].outstanding + 1 <= bounds[name]:
            return known[name]
    return min(replicas, key=lambda each: each.pressure)  # not reached: the limits add up to more than the load


def _bounds(known: Mapping[str, Replica], overload: float) -> dict[str, float]:
    """The maximum number of requests of each replica: `overload` times the replica's share of all requests, rounded up.
    The new request is counted."""
    present = sum(each.outstanding for each in known.values()) + 1
    room = sum(each.room for each in known.values())
    return {name: math.ceil(overload * present * each.room / room) for name, each in known.items()}


@lru_cache(maxsize=256)
def circle(names: tuple[str, ...]) -> tuple[list[int], list[str]]:
    """All points of the circle in ascending order, and the replica to which each point belongs."""
    found = sorted((_place(f"{name}#{number}".encode()), name) for name in names for number in range(POINTS))
    return [point for point, _ in found], [name for _, name in found]


def _place(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest())


def _keeps_off_spot(replicas: Sequence[Replica], place: int, on_demand: float) -> bool:
    """Return whether the conversation at the point `place` of the circle avoids spot machines. The result for a
    conversation never changes. `on_demand`: share of the conversations that avoid them (0 to 1)."""
    spot = sum(each.backend.spot for each in replicas)
    return 0 < spot < len(replicas) and (place * 0x9E3779B97F4A7C15 & 2**64 - 1) / 2**64 < on_demand
