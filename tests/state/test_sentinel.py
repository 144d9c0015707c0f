"""Three real sentinels, a master and its replica: a fail-over is followed, and no limit is overrun by it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from gateway.errors import StateUnavailable
from gateway.state.redis.connection import State
from gateway.state.redis.log import IndexLog
from tests.fakes.redis_servers import BINARIES, RedisServers
from tests.state.test_leases import Books, money, worker
from tests.state.test_log import Follower
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]


@pytest.fixture(params=BINARIES)
def servers(request: pytest.FixtureRequest) -> Iterator[RedisServers]:
    with RedisServers(BINARIES[request.param]) as servers:
        yield servers


def url(sentinels: list[int]) -> str:
    return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in sentinels)}/main"


async def test_after_the_master_was_killed_its_replica_serves_with_the_same_data(servers: RedisServers) -> None:
    sentinels, master, _ = await servers.guarded()
    state = State(url(sentinels))
    await state.open()
    epoch = state.epoch
    await state.call("SET", state.key("a"), "kept")
    log = IndexLog(state, "index")
    await log.append({"v": b"1"})
    follower = Follower(log)
    await until(lambda: follower.known == [b"1"])
    assert await state.call("WAIT", 1, 2000) == 1
    servers.kill(master)
    await until(lambda: not state.healthy)
    await until(lambda: state.healthy)
    assert state.epoch == epoch
    assert await state.call("GET", state.key("a")) == b"kept"
    await log.append({"v": b"2"})
    await until(lambda: follower.known == [b"1", b"2"])
    await follower.tasks.aclose()
    await state.aclose()


async def test_a_frozen_master_is_replaced_and_believed_no_more(servers: RedisServers) -> None:
    sentinels, master, _ = await servers.guarded()
    state = State(url(sentinels))
    await state.open()
    os.kill(servers.pid(master), signal.SIGSTOP)
    await until(lambda: not state.healthy)
    await until(lambda: state.healthy)
    assert await state.call("SET", state.key("a"), "1") == b"OK"
    os.kill(servers.pid(master), signal.SIGCONT)  # it takes itself for the master, until a sentinel tells it
    await asyncio.sleep(0.5)
    assert await state.call("GET", state.key("a")) == b"1"
    await state.aclose()


async def test_a_sum_is_not_overrun_by_a_fail_over(servers: RedisServers) -> None:
    sentinels, master, _ = await servers.guarded()
    states = [State(url(sentinels)) for _ in range(2)]
    for state in states:
        await state.open()
    books, spent = Books(), 0
    async with worker(states[0], ttl_s=3.0) as one, worker(states[1], ttl_s=3.0) as two:
        killed = False
        for turn in range(400):
            for leases in (one, two):
                lease = money(leases, 10_000, books)
                try:
                    short = await leases.take([(lease, 100)])
                except StateUnavailable:
                    await asyncio.sleep(0.02)
                    continue
                if short is None:
                    spent += 60
                    books.settled = spent  # the ledger has it before anybody asks
                    leases.settle([lease], 100, 60)
            if turn == 40 and not killed:
                killed = True
                await asyncio.to_thread(servers.kill, master)
            if killed and not states[0].healthy:
                await asyncio.sleep(0.02)
        await until(lambda: all(state.healthy for state in states))
    assert 9_000 < spent <= 10_000
    for state in states:
        await state.aclose()
