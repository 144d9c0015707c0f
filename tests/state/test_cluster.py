"""A real cluster of three nodes behind the same door."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from redis.crc import REDIS_CLUSTER_HASH_SLOTS as SLOTS
from redis.crc import key_slot

from gateway.errors import StateUnavailable
from gateway.state import bundle
from gateway.state.connection import Script, State
from gateway.state.door import Command
from gateway.state.log import IndexLog
from tests.state.conftest import Serve, Until
from tests.state.test_log import Follower

TWO = Script("two", "redis.call('SET', KEYS[1], ARGV[1]); return redis.call('APPEND', KEYS[2], ARGV[1])")


async def tell(port: int, *commands: Command) -> list[Any]:
    door = await State(f"redis://127.0.0.1:{port}").dial()
    try:
        return await door.exchange(commands, 2.0)
    finally:
        await door.aclose()


def slot_of(key: str) -> int:
    return key_slot(key.encode())


async def form(serve: Serve) -> list[int]:
    """Three masters, each with a third of the slots."""
    ports = [await serve("--cluster-enabled", "yes", "--cluster-node-timeout", "2000") for _ in range(3)]
    for number, port in enumerate(ports):
        first, last = SLOTS * number // 3, SLOTS * (number + 1) // 3 - 1
        await tell(port, ("CLUSTER", "ADDSLOTSRANGE", first, last), ("CLUSTER", "SET-CONFIG-EPOCH", number + 1))
        await tell(port, ("CLUSTER", "MEET", "127.0.0.1", ports[0]))
    for port in ports:
        while b"cluster_state:ok" not in (await tell(port, ("CLUSTER", "INFO")))[0]:
            await asyncio.sleep(0.05)
    return ports


@pytest.mark.heavy
async def test_a_cluster_serves_like_one_server(serve: Serve, until: Until) -> None:
    ports = await form(serve)
    state = State(f"redis+cluster://127.0.0.1:{ports[2]},127.0.0.1:{ports[0]}", timeout_s=2.0)
    await state.open()
    assert state.healthy
    keys = [state.key(str(number)) for number in range(30)]
    assert await state.pipeline([("SET", key, key) for key in keys]) == [b"OK"] * 30
    assert await state.pipeline([("GET", key) for key in keys]) == [key.encode() for key in keys]
    assert await state.call("GET", state.key("none")) is None
    pair = [state.key("x", tag="team"), state.key("y", tag="team")]
    assert await state.run(TWO, pair, ["ab"]) == 2
    with pytest.raises(StateUnavailable, match="WRONGTYPE"):
        await state.call("LPUSH", pair[0], "x")
    for key in [state.key("bundle", str(number)) for number in range(10)]:
        await bundle.put(state, key, [("a", key.encode()), ("b", b"2")], 60)
        assert await bundle.get(state, key, "a") == key.encode()
    assert await state.pipeline([("HDEL", state.key("bundle", str(number)), "a") for number in range(10)]) == [1] * 10
    log = IndexLog(state, "index")
    await log.append({"v": b"1"})
    follower = Follower(log)
    await until(lambda: follower.known == [b"1"])
    await log.append({"v": b"2"})
    await until(lambda: follower.known == [b"1", b"2"])
    await follower.tasks.aclose()
    await state.aclose()


@pytest.mark.heavy
async def test_a_slot_on_the_move_is_found_on_either_side(serve: Serve) -> None:
    ports = await form(serve)
    state = State(f"redis+cluster://127.0.0.1:{ports[0]}", timeout_s=2.0)
    await state.open()
    old, new = state.key("old", tag="moving"), state.key("new", tag="moving")
    await state.call("SET", old, "1")
    slot = slot_of(old)
    source, target = ports[slot * 3 // SLOTS], ports[(slot * 3 // SLOTS + 1) % 3]
    names = {port: (await tell(port, ("CLUSTER", "MYID")))[0] for port in ports}
    await tell(target, ("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source]))
    await tell(source, ("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target]))
    assert await state.pipeline([("GET", old), ("SET", new, "2"), ("GET", new)]) == [b"1", b"OK", b"2"]  # ASK
    await tell(source, ("MIGRATE", "127.0.0.1", target, old, 0, 1000))
    for port in (target, source, *ports):
        await tell(port, ("CLUSTER", "SETSLOT", slot, "NODE", names[target]))
    assert await state.pipeline([("GET", old), ("GET", new)]) == [b"1", b"2"]  # MOVED
    await state.aclose()


@pytest.mark.heavy
async def test_a_node_that_dies_takes_only_its_slots_with_it(serve: Serve) -> None:
    ports = await form(serve)
    state = State(f"redis+cluster://127.0.0.1:{ports[0]}", timeout_s=2.0)
    await state.open()
    for port in ports:
        await tell(port, ("CONFIG", "SET", "cluster-require-full-coverage", "no"))
    keys = {slot_of(state.key(str(number))) * 3 // SLOTS: state.key(str(number)) for number in range(50)}
    home = slot_of(state.key("epoch")) * 3 // SLOTS
    dying = (home + 1) % 3
    with pytest.raises(StateUnavailable):
        await tell(ports[dying], ("SHUTDOWN", "NOSAVE"))
    with pytest.raises(StateUnavailable):
        await state.call("GET", keys[dying])
    assert await state.call("GET", keys[home]) is None
    assert state.healthy
    await state.aclose()


@pytest.mark.heavy
async def test_a_cluster_that_is_away_counts_as_down() -> None:
    state = State("redis+cluster://127.0.0.1:1")
    await state.open()
    assert not state.healthy
    with pytest.raises(StateUnavailable):
        await state.call("PING")
    await state.aclose()


@pytest.mark.heavy
async def test_a_frozen_node_is_given_up_in_time_and_a_crowd_of_callers_is_served(serve: Serve) -> None:
    ports = await form(serve)
    for port in ports:
        await tell(port, ("CONFIG", "SET", "cluster-require-full-coverage", "no"))
    state = State(f"redis+cluster://127.0.0.1:{ports[0]}", timeout_s=1.0)
    await state.open()
    counted = await asyncio.gather(*(state.call("INCRBY", state.key(str(number)), 7) for number in range(300)))
    assert counted == [7] * 300
    keys = {slot_of(state.key(str(number))) * 3 // SLOTS: state.key(str(number)) for number in range(50)}
    home = slot_of(state.key("epoch")) * 3 // SLOTS
    frozen = (home + 1) % 3
    (info,) = await tell(ports[frozen], ("INFO", "server"))
    pid = int(info.partition(b"process_id:")[2].split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StateUnavailable, match="no reply in time"):
            await state.call("GET", keys[frozen])
        await served(state, keys[home])
    finally:
        os.kill(pid, signal.SIGCONT)
        await state.aclose()


async def served(state: State, key: str) -> None:
    """Whom it asks for the slots' new homes is redis-py's choice: the frozen node may be asked once more."""
    while True:
        try:
            assert await state.call("GET", key) == b"7"
        except StateUnavailable:
            await asyncio.sleep(0.05)
        else:
            return
