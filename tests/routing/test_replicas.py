"""Conversations keep to their replica, loads stay within the bound, and few move when a replica goes."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.backend import Backend, PriceEntry
from gateway.routing.affinity.replicas import Replica, group_of, order
from tests.routing.conftest import backend

THREE = [backend(name, "small", model="qwen") for name in ("a", "b", "c")]
KEYS = [f"session {number}".encode() for number in range(3000)]
LONG, SHORT = 2000, 20


def first(replicas: list[Replica], key: bytes, tokens: int = LONG, **more: float) -> str:
    return order(replicas, key, tokens, **more)[0].name


def idle(backends: list[Backend]) -> list[Replica]:
    return [Replica(each) for each in backends]


def test_a_conversation_always_finds_the_same_replica_and_all_get_their_part() -> None:
    chosen = Counter(first(idle(THREE), key) for key in KEYS)
    assert [first(idle(THREE), key) for key in KEYS] == [first(idle(THREE[::-1]), key) for key in KEYS]
    assert all(600 < count < 1400 for count in chosen.values())


def test_when_one_goes_only_its_conversations_move() -> None:
    before = {key: first(idle(THREE), key) for key in KEYS}
    after = {key: first(idle(THREE[:2]), key) for key in KEYS}
    assert all(after[key] == before[key] for key in KEYS if before[key] != "c")


def test_short_prompts_go_where_there_is_least_to_do() -> None:
    busy = [Replica(THREE[0], 3), Replica(THREE[1], 1), Replica(THREE[2], 8, capacity=16)]
    assert [each.name for each in order(busy, b"any", SHORT)] == ["c", "b", "a"]


@given(
    loads=st.lists(st.integers(0, 40), min_size=2, max_size=6),
    key=st.binary(max_size=8),
    overload=st.floats(1.01, 4),
)
def test_whoever_is_asked_stays_within_the_bound(loads: list[int], key: bytes, overload: float) -> None:
    replicas = [Replica(backend(f"r{number}", "small"), load) for number, load in enumerate(loads)]
    chosen = order(replicas, key, LONG, overload=overload)
    assert sorted(each.name for each in chosen) == sorted(each.backend.name for each in replicas)
    load = next(each.outstanding for each in replicas if each.backend is chosen[0])
    assert load + 1 <= math.ceil(overload * (sum(loads) + 1) / len(loads))


def test_a_flood_of_one_conversation_spills_to_the_others() -> None:
    outstanding = dict.fromkeys("abc", 0)
    for _ in range(300):
        name = first([Replica(each, outstanding[each.name]) for each in THREE], b"one", overload=1.25)
        outstanding[name] += 1
    assert max(outstanding.values()) <= math.ceil(1.25 * 100) + 1
    assert min(outstanding.values()) > 0


def test_a_share_of_conversations_stays_off_spot_machines() -> None:
    pool = idle([THREE[0].model_copy(update={"spot": True}), THREE[1].model_copy(update={"spot": True}), THREE[2]])
    share = sum(first(pool, key, on_demand=0.5) == "c" for key in KEYS) / len(KEYS)
    without = sum(first(pool, key) == "c" for key in KEYS) / len(KEYS)
    assert share == pytest.approx(0.5 + 0.5 * without, abs=0.05)
    assert {first(pool, key, on_demand=1.0) for key in KEYS[:200]} == {"c"}
    spot_alone = pool[:2]
    assert {first(spot_alone, key, on_demand=1.0) for key in KEYS[:200]} == {"a", "b"}


def test_replicas_are_those_that_stand_for_each_other() -> None:
    hour = PriceEntry(machine_hour_usd=Decimal(2))
    cheap = PriceEntry(machine_hour_usd=Decimal(1))
    machines = [
        backend("steady", "small", model="qwen").model_copy(update={"price": hour}),
        backend("spot", "small", model="qwen").model_copy(update={"price": cheap, "spot": True}),
    ]
    others = [
        backend("api", "hosted", "0.2", model="qwen"),
        backend("dear", "hosted", "0.9", model="qwen"),
        backend("llama", "small").model_copy(update={"price": hour}),
    ]
    assert group_of(machines[0]) == group_of(machines[1])
    assert len({group_of(each) for each in (*machines, *others)}) == 4
