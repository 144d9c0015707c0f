from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.cache.coalescing import redis_locks
from gateway.cache.coalescing.redis_locks import RedisLocks
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State

DIGEST = b"d" * 16


async def at_once() -> None:
    """All is delivered."""


@pytest.fixture
async def make(state: State) -> AsyncIterator[Callable[[], RedisLocks]]:
    made: list[RedisLocks] = []

    def one() -> RedisLocks:
        made.append(RedisLocks(state, at_once))
        return made[-1]

    yield one
    for each in made:
        await each.aclose()


def far() -> float:
    return asyncio.get_running_loop().time() + 60


async def test_one_asks_and_the_others_wait_until_it_is_done(make: Callable[[], RedisLocks]) -> None:
    one, two, tasks = make(), make(), Tasks()
    assert await one.take(DIGEST, far())
    assert await one.take(DIGEST, far())  # its own is in nobody's way
    assert await two.take(b"e" * 16, far())
    waiting = tasks.spawn(two.take(DIGEST, far()), "wait")
    await asyncio.sleep(0.2)
    assert not waiting.done()
    one.release(DIGEST)
    assert await waiting is False
    assert await two.take(DIGEST, far())


async def test_workers_that_find_each_other_by_other_means_do_not_wait(make: Callable[[], RedisLocks]) -> None:
    one, two = make(), make()
    one.owner = two.owner = "host"
    assert await one.take(DIGEST, far())
    assert await two.take(DIGEST, far())


async def test_one_that_is_at_it_for_long_keeps_its_mark_and_one_that_died_does_not(
    make: Callable[[], RedisLocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_locks, "LEASE_S", 0.3)
    one, two, tasks = make(), make(), Tasks()
    assert await one.take(DIGEST, far())
    waiting = tasks.spawn(two.take(DIGEST, far()), "wait")
    await asyncio.sleep(0.8)
    assert not waiting.done()
    await one.aclose()
    assert await waiting is False


async def test_nobody_waits_longer_than_its_own_deadline(make: Callable[[], RedisLocks]) -> None:
    one, two = make(), make()
    assert await one.take(DIGEST, far())
    async with asyncio.timeout(30):
        await two.take(DIGEST, asyncio.get_running_loop().time() + 0.2)


async def test_with_the_state_server_away_everybody_asks() -> None:
    state = State("unix:///nowhere/there.sock", timeout_s=0.1)
    await state.open()
    alone = RedisLocks(state, at_once)
    assert await alone.take(DIGEST, far())
    alone.release(DIGEST)
    await alone.aclose()
    await state.aclose()
