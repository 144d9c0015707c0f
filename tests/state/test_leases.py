from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.errors import StateUnavailable
from gateway.state.leases.counter import Lease, NotEnough
from gateway.state.leases.leases import Leases
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from tests.support.waiting import until

PERIOD_S = 0.05


@asynccontextmanager
async def worker(state: State, *, ttl_s: float = 15.0) -> AsyncIterator[Leases]:
    leases = Leases(state, period_s=PERIOD_S, ttl_s=ttl_s)
    await leases.open()
    try:
        yield leases
    finally:
        await leases.aclose()


def rate(leases: Leases, limit: int) -> Lease:
    return leases.counter("team", "requests", kind="rate", limit=limit)


def gauge(leases: Leases, limit: int) -> Lease:
    return leases.counter("team", "concurrent", kind="gauge", limit=limit)


class Books:
    """What a ledger would know: the base that a sum is rebuilt from."""

    def __init__(self, settled: int = 0) -> None:
        self.settled, self.asked = settled, 0

    async def __call__(self) -> int:
        self.asked += 1
        return self.settled


def money(leases: Leases, limit: int, books: Books) -> Lease:
    return leases.counter("team", "budget", kind="sum", limit=limit, rebuild=books)


async def stored(state: State, lease: Lease, field: str = "s") -> int:
    return int(await state.call("HGET", lease.key, field))


async def takes(leases: Leases, lease: Lease, times: int, units: int = 1) -> int:
    """How many of so many simultaneous takes were granted."""
    found = await asyncio.gather(*(leases.take([(lease, units)]) for _ in range(times)))
    return sum(short is None for short in found)


async def test_two_workers_together_grant_exactly_the_limit(state: State) -> None:
    async with worker(state) as one, worker(state) as two:
        granted = await asyncio.gather(takes(one, rate(one, 100), 150), takes(two, rate(two, 100), 150))
        assert sum(granted) == 100
        short = await one.take([(rate(one, 100), 1)])
        assert isinstance(short, NotEnough)
        assert short.retry_after_s is not None
        assert 58 < short.retry_after_s <= 60


async def test_small_and_large_takes_never_exceed_the_limit_either(state: State) -> None:
    async with worker(state) as one, worker(state) as two:
        jobs = [takes(leases, rate(leases, 10_000), 20, units) for leases in (one, two) for units in (7, 300, 1200, 64)]
        granted = await asyncio.gather(*jobs)
        used = sum(count * units for count, units in zip(granted, (7, 300, 1200, 64) * 2, strict=True))
        assert 9_900 < used <= 10_000


async def test_far_from_the_limit_nothing_is_asked_of_the_server(state: State) -> None:
    async with worker(state) as leases:
        lease = rate(leases, 1_000_000)
        for _ in range(50):
            await leases.take([(lease, 1)])
        await until(lambda: lease.free >= 50)
        before = leases.stats()["rounds"]
        assert all(leases.try_take([(lease, 1)]) for _ in range(50))
        assert leases.stats()["rounds"] == before


async def test_callers_that_want_the_same_counter_at_once_share_one_read(state: State) -> None:
    async with worker(state) as leases:
        books = Books()
        lease = money(leases, 1000, books)
        await asyncio.gather(*(leases.refresh([lease], 5.0) for _ in range(64)))
        assert (leases.stats()["rounds"], leases.stats()["rebuilt"]) == (2, 1)  # the server asked for the base, got it
        await asyncio.gather(*(leases.refresh([lease], 0) for _ in range(64)))
        assert leases.stats()["rounds"] <= 4  # a read that began after the call is new enough


async def test_a_read_that_began_before_the_call_is_not_new_enough(state: State) -> None:
    async with worker(state) as leases:
        lease = rate(leases, 10)
        reading = asyncio.create_task(leases.refresh([lease], 0))
        await asyncio.sleep(0)
        lease.force(3, leases.step)
        await asyncio.gather(reading, leases.refresh([lease], 0))
        assert await stored(state, lease) == 3


async def test_all_counters_of_a_request_are_taken_or_none(state: State) -> None:
    async with worker(state) as leases:
        wide, narrow = rate(leases, 100), gauge(leases, 1)
        assert await leases.take([(wide, 1), (narrow, 1)]) is None
        short = await leases.take([(wide, 1), (narrow, 1)])
        assert short is not None
        assert short.lease is narrow
        assert (wide.remaining, narrow.busy) == (99, 1)


async def test_of_several_sums_the_same_is_held_or_nothing(state: State) -> None:
    async with worker(state) as leases:
        first, second = (
            leases.counter("team", name, kind="sum", limit=1000, rebuild=Books()) for name in ("day", "month")
        )
        assert await leases.take([(first, 10)]) is None
        leases.give([first], 10)
        assert not leases.try_hold([first, second], 5)
        assert (first.busy, second.busy) == (0, 0)
        assert await leases.take([(second, 10)]) is None
        leases.give([second], 10)
        assert leases.try_hold([first, second], 5)
        assert (first.busy, second.busy) == (5, 5)


async def test_a_counter_that_was_put_away_is_reported_when_it_is_corrected(state: State) -> None:
    async with worker(state) as leases:
        lease = rate(leases, 1000)
        assert await leases.take([(lease, 10)]) is None
        then = leases.taken_at
        lease.withdraw()
        await until(lambda: leases.stats()["leases"] == 0)
        leases.correct(lease, -4, then)
        assert leases.stats()["leases"] == 1
        await until(lambda: leases.stats()["leases"] == 0)
        assert await stored(state, lease) == 6


async def test_a_use_leaves_the_window_after_sixty_seconds(state: State) -> None:
    async with worker(state) as leases:
        lease = rate(leases, 10)
        await leases.refresh([lease], 0)
        lease.force(10, leases.step - 590)
        await leases.refresh([lease], 0)
        short = await leases.take([(lease, 1)])
        assert short is not None
        assert short.retry_after_s is not None
        assert 0.5 < short.retry_after_s < 1.1
        await asyncio.sleep(short.retry_after_s)
        assert await takes(leases, lease, 12) == 10


async def test_tokens_given_back_belong_to_the_moment_they_were_taken(state: State) -> None:
    async with worker(state) as leases:
        lease = rate(leases, 1000)
        await leases.refresh([lease], 0)
        then = leases.step - 595
        lease.force(900, then)
        await leases.refresh([lease], 0)
        leases.correct(lease, -800, then)
        await leases.refresh([lease], 0)
        assert await stored(state, lease) == 100
        await asyncio.sleep(0.6)
        await leases.refresh([lease], 0)
        assert await stored(state, lease) == 0


async def test_more_tokens_than_foreseen_count_from_now(state: State) -> None:
    async with worker(state) as leases:
        lease = rate(leases, 1000)
        assert await leases.take([(lease, 10)]) is None
        leases.correct(lease, 985, leases.step - 700)
        await leases.refresh([lease], 0)
        assert await stored(state, lease) == 995
        assert await leases.take([(lease, 6)]) is not None


async def test_what_a_worker_no_longer_needs_is_given_back(state: State) -> None:
    async with worker(state) as one, worker(state) as two:
        mine, others = rate(one, 1000), rate(two, 1000)
        await takes(one, mine, 60)
        assert mine.free > 0
        await takes(two, others, 1)
        granted = await takes(two, others, 939)
        assert granted == 939
        assert await two.take([(others, 1)]) is not None


async def test_a_gauge_is_exact_and_free_again_when_given_back(state: State) -> None:
    async with worker(state) as one, worker(state) as two:
        mine, others = gauge(one, 8), gauge(two, 8)
        assert sum(await asyncio.gather(takes(one, mine, 8), takes(two, others, 8))) == 8
        one.give([mine], mine.busy)
        two.give([others], others.busy)
        await asyncio.sleep(0.5)
        assert await takes(two, others, 8) == 8


async def test_a_dead_workers_gauge_is_free_after_its_lease_has_expired(state: State) -> None:
    dead = Leases(state, period_s=PERIOD_S, ttl_s=0.4)
    assert await dead.take([(gauge(dead, 1), 1)]) is None  # never opened: nothing refreshes it
    async with worker(state) as leases:
        lease = gauge(leases, 1)
        assert await leases.take([(lease, 1)]) is not None
        await granted(leases, lease, 1)


async def test_a_busy_worker_keeps_its_gauge_by_refreshing(state: State) -> None:
    async with worker(state, ttl_s=1.5) as one, worker(state) as two:
        assert await one.take([(gauge(one, 1), 1)]) is None
        for _ in range(10):
            await asyncio.sleep(0.2)
            assert await two.take([(gauge(two, 1), 1)]) is not None


async def test_a_sum_begins_with_what_the_ledger_knows(state: State) -> None:
    books = Books(700)
    async with worker(state) as leases:
        lease = money(leases, 1000, books)
        assert await takes(leases, lease, 5, 100) == 3
        assert books.asked == 1
        assert (lease.settled, lease.busy) == (700, 300)


async def test_held_is_settled_or_released_and_nothing_is_lost(state: State) -> None:
    async with worker(state) as leases:
        lease = money(leases, 1000, Books())
        await leases.take([(lease, 400)])
        await leases.take([(lease, 400)])
        assert await leases.take([(lease, 400)]) is not None
        leases.settle([lease], 400, 150)
        leases.give([lease], 400)
        assert await takes(leases, lease, 9, 100) == 8
        assert (lease.settled, lease.busy, lease.remaining) == (150, 800, 50)


async def test_closing_gives_everything_back(state: State) -> None:
    async with worker(state) as leases:
        lease, used = rate(leases, 1000), money(leases, 1000, Books())
        await takes(leases, lease, 30)
        await leases.take([(used, 100)])
        leases.settle([used], 100, 60)
    entries = (await state.call("HGET", lease.key, "w")).decode()
    assert entries.split("=")[1:3] == ["0", "0"]
    assert (await stored(state, lease), await stored(state, used)) == (30, 60)


async def test_a_dead_workers_money_stays_held_until_the_ledger_has_been_asked(state: State) -> None:
    books = Books()
    dead = Leases(state, period_s=PERIOD_S, ttl_s=0.3)
    assert await dead.take([(money(dead, 1000, books), 600)]) is None
    async with worker(state) as leases:
        lease = money(leases, 1000, books)
        assert await leases.take([(lease, 600)]) is not None
        books.settled = 250  # the ledger closed what the dead worker had begun
        await granted(leases, lease, 600)
        assert (lease.settled, lease.busy) == (250, 600)
        assert books.asked == 3


async def test_wiped_data_are_rebuilt_and_open_holds_still_count(server: EmbeddedServer, own: State) -> None:
    books = Books()
    async with worker(own) as one, worker(own) as two:
        mine, others = money(one, 1000, books), money(two, 1000, books)
        assert await two.take([(others, 500)]) is None
        assert await one.take([(mine, 200)]) is None
        one.settle([mine], 200, 120)
        books.settled = 120
        await asyncio.sleep(0.6)  # settled before the rebuild begins, beyond doubt
        await own.call("FLUSHALL")
        granted = 0
        for _ in range(28):
            granted += await takes(one, mine, 4, 100)
            await asyncio.sleep(0.05)
        assert granted == 3  # 1000 − 120 spent − 500 held by the other worker
        assert mine.settled == 120


async def test_a_report_that_was_cut_off_by_a_freeze_counts_once(server: EmbeddedServer, own: State) -> None:
    async with worker(own) as leases:
        lease = money(leases, 10_000, Books())
        await leases.take([(lease, 1000)])
        leases.settle([lease], 1000, 700)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StateUnavailable):
                await leases.refresh([lease], 0)  # the server reads it when it wakes
            leases.force(lease, 500)
            leases.settle([lease], 500, 300)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await until(lambda: own.healthy)
        await leases.refresh([lease], 0)
        await leases.refresh([lease], 0)
        assert await stored(own, lease) == 1000


async def test_a_server_that_lost_its_last_moments_is_found_out(state: State) -> None:
    books = Books()
    async with worker(state) as leases:
        lease = money(leases, 1000, books)
        await leases.take([(lease, 100)])
        before = await state.call("HGETALL", lease.key)
        for _ in range(3):
            leases.settle([lease], 0, 100)
            await leases.refresh([lease], 0)
        books.settled = 300
        await asyncio.sleep(0.6)
        await state.call("HSET", lease.key, *before)
        await leases.refresh([lease], 0)
        assert (lease.settled, books.asked) == (300, 2)


async def test_a_counter_of_another_epoch_is_not_trusted(state: State, state_url: str) -> None:
    async with worker(state) as leases:
        lease = money(leases, 1000, Books())
        assert await leases.take([(lease, 900)]) is None
        leases.settle([lease], 900, 900)
    await state.call("SET", state.key("epoch"), "another")
    books = Books(500)
    fresh = State(state_url, timeout_s=2.0, namespace=state._namespace)
    await fresh.open()
    async with worker(fresh) as leases:
        lease = money(leases, 1000, books)
        assert await takes(leases, lease, 9, 100) == 5
        assert (lease.settled, books.asked) == (500, 1)
    await fresh.aclose()


async def test_without_the_server_the_lease_goes_on_and_then_ends(server: EmbeddedServer, own: State) -> None:
    async with worker(own, ttl_s=1.6) as leases:
        lease = rate(leases, 100_000)
        await takes(leases, lease, 40)
        await asyncio.to_thread(server.stop)
        left = lease.free
        assert left > 0
        assert leases.try_take([(lease, left)])
        with pytest.raises(StateUnavailable):
            await leases.take([(lease, lease.free + 20_000)])  # time gives some back on a slow machine
        lease.free = 5  # as if some were left
        await asyncio.sleep(0.8)
        assert lease.free == 0


async def test_uses_without_the_server_are_reported_when_it_is_back(server: EmbeddedServer, own: State) -> None:
    async with worker(own) as leases:
        lease = rate(leases, 1000)
        await leases.take([(lease, 10)])
        await leases.refresh([lease], 0)
        await asyncio.to_thread(server.stop)
        leases.force(lease, 25)
        assert lease.used(leases.step) == 35
        await asyncio.to_thread(server.start)
        await until(lambda: own.healthy)
        await leases.refresh([lease], 0)  # first the report that was never answered
        await leases.refresh([lease], 0)
        assert await stored(own, lease) == 35


async def test_a_cancelled_waiter_leaves_the_others_right(state: State) -> None:
    async with worker(state) as leases:
        lease = rate(leases, 50)
        waiters = [asyncio.ensure_future(leases.take([(lease, 1)])) for _ in range(80)]
        await asyncio.sleep(0)
        for waiter in waiters[::2]:
            waiter.cancel()
        found = await asyncio.gather(*waiters, return_exceptions=True)
        granted = sum(short is None for short in found)
        granted += await takes(leases, lease, 80)
        assert granted == 50
        assert lease.waiting == []


async def test_a_raised_limit_holds_at_once(state: State) -> None:
    async with worker(state) as leases:
        assert await takes(leases, rate(leases, 5), 9) == 5
        await asyncio.sleep(0.11)
        assert await takes(leases, rate(leases, 9), 9) == 4


async def test_a_sum_that_cannot_be_rebuilt_is_no_sum(state: State) -> None:
    async def broken() -> int:
        raise OSError("the disk is gone")

    async with worker(state) as leases:
        lease = leases.counter("team", "budget", kind="sum", limit=10, rebuild=broken)
        with pytest.raises(StateUnavailable, match="the disk is gone"):
            await leases.take([(lease, 1)])


async def test_idle_counters_are_forgotten(state: State) -> None:
    async with worker(state) as leases:
        for number in range(20):
            await leases.take([(leases.counter("team", "key", str(number), kind="gauge", limit=9), 1)])
        assert leases.stats()["leases"] == 20
        for group in leases._groups.values():
            for lease in group.active:
                leases.give([lease], lease.busy)
                lease.withdraw()
        await until(lambda: leases.stats()["leases"] == 0)


class Mortal(Leases):
    """A worker whose process another one takes for dead when it is told so."""

    def end(self) -> str:
        machine, _, _, chance = self._worker.split("-", 3)
        self._worker = f"{machine}-7ffffff0-0-{chance}"
        return self._worker


async def granted(leases: Leases, lease: Lease, units: int) -> None:
    """Ask until they are."""
    async with asyncio.timeout(30):
        while await leases.take([(lease, units)]) is not None:
            await asyncio.sleep(0.05)


async def test_what_a_dead_worker_held_is_free_as_soon_as_somebody_is_short_of_it(state: State) -> None:
    books = Books()
    mortal = Mortal(state, ttl_s=3600)
    mortal.end()
    its = money(mortal, 100, books)
    assert await mortal.take([(its, 100)]) is None
    await mortal.refresh([its], 0)  # which tells what it has in use
    books.settled = 30  # what the ledger closed for it
    async with worker(state) as leases:
        lease = money(leases, 100, books)
        await granted(leases, lease, 60)
        assert books.asked == 3  # once by the dead one, twice the same by this one
        assert lease.settled == 31  # and a hundredth of what it had in use, for what it never read
        assert await leases.take([(lease, 10)]) is not None
        leases.give([lease], 60)


async def test_a_living_worker_keeps_what_it_holds(state: State) -> None:
    books = Books()
    async with worker(state) as one, worker(state) as two:
        first = money(one, 100, books)
        assert await one.take([(first, 100)]) is None
        for _ in range(4):
            assert await two.take([(money(two, 100, books), 10)]) is not None
        assert books.asked == 1
        one.give([first], 100)


async def test_what_is_settled_while_a_sum_is_rebuilt_is_not_forgotten(state: State) -> None:
    """The base is read, then others settle and report, and only then the sum is made anew."""
    reading, read = asyncio.Event(), asyncio.Event()

    class Slow(Books):
        async def __call__(self) -> int:
            self.asked += 1
            settled = self.settled
            if self.asked > 1:
                reading.set()
                await read.wait()
            return settled

    books = Slow()
    mortal = Mortal(state, ttl_s=3600)
    mortal.end()
    async with worker(state) as one, worker(state) as two:
        other = money(two, 1000, books)
        assert await two.take([(other, 300)]) is None
        its = money(mortal, 1000, books)
        assert await mortal.take([(its, 600)]) is None
        await mortal.refresh([its], 0)
        lease = money(one, 1000, books)
        wanting = asyncio.ensure_future(granted(one, lease, 500))
        await reading.wait()
        two.settle([other], 300, 250)
        async with asyncio.timeout(30):
            while other._unreported:
                await asyncio.sleep(0.01)
        read.set()
        await wanting
        async with asyncio.timeout(30):
            while await stored(state, lease) != 250 + 6:
                await asyncio.sleep(0.02)


async def test_a_counter_of_many_keeps_nothing_ahead_and_is_forgotten(state: State) -> None:
    async with worker(state) as leases:
        lease = leases.counter("one user", "sum", kind="sum", limit=100, rebuild=Books(), ahead=False)
        assert await leases.take([(lease, 10)]) is None
        assert lease.free == 0
        leases.settle([lease], 10, 4)
        await until(lambda: not leases.stats()["leases"])
        assert await stored(state, lease) == 4


def test_units_in_use_are_counted_before_and_after_they_are_reported() -> None:
    lease = Lease("team", "key", "rate", 100, 1000, None)
    lease.force(30, 5)
    lease.force(10, 7)
    lease.correct(-20, 5)
    waits = [lease.wait_s(units, 7) for units in (10, 15, 21)]
    assert lease.used(7) == 20
    assert waits == [59.8, 60.0, None]
    lease.report("")
    assert lease.used(7) == 20
    assert [lease.wait_s(units, 7) for units in (10, 15, 21)] == waits
    lease.correct(-50, 5)  # more than was used then
    assert lease.used(7) == 10
