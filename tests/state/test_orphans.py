"""What is held for dead workers: until their journals are in the ledger, or an operator lets it go."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import Connection, select

from gateway.state.leases import orphaned_holds
from gateway.state.leases.counter import Lease
from gateway.state.leases.leases import Leases
from gateway.state.leases.orphaned_holds import OrphanedHold
from gateway.state.leases.orphans import PATIENCE_S, RECORD_S, Orphans
from gateway.state.leases.worker_names import own_name
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from gateway.state.sql.tables import audit, drained_workers
from tests.state.test_leases import Books, gauge, granted, money, rate, takes
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(60)

TTL_S = 0.3
KEY = "tg:{search}:lease:budget:team:usd:0:month:Europe/Madrid:1767225600"


def elsewhere(host: str = "far") -> str:
    """A worker of another machine."""
    return f"0badcafe-7f-0-{secrets.token_hex(4)}@{host}"


class Clock:
    """Seconds that a test can let pass."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@asynccontextmanager
async def worker(
    state: State, database: Database, clock: Clock | None = None, name: str | None = None
) -> AsyncIterator[tuple[Leases, Orphans]]:
    name = name or own_name()
    orphans = Orphans(database, name, monotonic=clock or Clock())
    leases = Leases(state, period_s=0.05, ttl_s=TTL_S, worker=name, dead=orphans)
    await leases.open()
    try:
        yield leases, orphans
    finally:
        await leases.aclose()


async def die(state: State, books: Books, name: str, units: int = 600, settled: int = 0) -> None:
    """A worker that leases so much, reports it and is not heard of again."""
    leases = Leases(state, ttl_s=TTL_S, worker=name)
    lease = money(leases, 1000, books)
    assert await leases.take([(lease, units)]) is None
    if settled:
        leases.settle([lease], settled, settled)
    lease.withdraw()  # nothing ahead
    await leases.refresh([lease], 0)


async def drained(database: Database, name: str) -> None:
    await database.run(lambda connection: orphaned_holds.drained(connection, name))


async def refused(leases: Leases, lease: Lease, units: int) -> bool:
    return await leases.take([(lease, units)]) is not None


async def test_a_dead_workers_whole_lease_is_held_until_it_is_drained(own: State, database: Database) -> None:
    books, name = Books(), elsewhere()
    async with worker(own, database) as (leases, _):
        await die(own, books, name)
        lease = money(leases, 1000, books)
        await granted(leases, lease, 400)
        await asyncio.sleep(4 * TTL_S)
        assert await refused(leases, lease, 1)
        books.settled = 250
        await drained(database, name)
        await granted(leases, lease, 300)
        assert lease.settled == 256  # and a hundredth of what it had in use
        assert not await refused(leases, lease, 44)
        assert await refused(leases, lease, 1)


async def test_rates_and_gauges_of_a_dead_worker_end_as_ever(own: State, database: Database) -> None:
    async with worker(own, database) as (leases, _):
        dead = Leases(own, ttl_s=TTL_S, worker=elsewhere())
        assert await dead.take([(gauge(dead, 2), 2), (rate(dead, 10), 1)]) is None
        await dead.refresh([gauge(dead, 2)], 0)

        async def granted() -> bool:
            return await leases.take([(gauge(leases, 2), 2), (rate(leases, 10), 9)]) is None

        await until(granted)


async def test_a_sum_that_is_rebuilt_meanwhile_goes_on_holding_for_the_undrained(
    own: State, database: Database
) -> None:
    """And does not forget what the undrained one had reported, though the ledger has none of it."""
    books, gone, killed = Books(), elsewhere(), elsewhere("near")
    async with worker(own, database) as (leases, _):
        await die(own, books, gone, units=300, settled=200)
        await die(own, books, gone, units=300)  # another 300 in use
        await die(own, books, killed, units=100)
        lease = money(leases, 1000, books)
        await granted(leases, lease, 400)
        books.settled = 50  # of the killed one: what the lost one settled is on no ledger yet
        await drained(database, killed)
        before = books.asked
        async with asyncio.timeout(20):
            while books.asked == before or lease.stale:
                await leases.refresh([lease], 0)
                await asyncio.sleep(0.02)
        await leases.refresh([lease], 0)
        assert lease.settled + lease.held + lease.busy <= 1000
        assert lease.settled >= 250
        assert await refused(leases, lease, 1)
        books.settled = 50 + 200 + 120
        await drained(database, gone)
        await granted(leases, lease, 200)


async def test_a_rebuilt_sum_keeps_what_another_living_host_has_reported_and_not_drained(
    own: State, database: Database
) -> None:
    books, name = Books(), elsewhere()
    async with worker(own, database) as (leases, _), worker(own, database) as (others, _):
        lease, its = money(leases, 1000, books), money(others, 1000, books)
        assert await others.take([(its, 300)]) is None
        others.settle([its], 300, 300)
        its.withdraw()  # what it leased ahead of need may be more than the 100 that the dead worker leaves
        await others.refresh([its], 0)
        await die(own, books, name)
        await drained(database, name)  # having spent nothing, and the ledger has none of the 300
        await granted(leases, lease, 600)
        assert lease.settled >= 300
        assert await refused(leases, lease, 101)
        leases.give([lease], 600)


async def test_a_server_that_lost_its_data_holds_again_what_is_on_record(own: State, database: Database) -> None:
    books, name, clock = Books(), elsewhere(), Clock()
    async with worker(own, database, clock) as (leases, orphans):
        await die(own, books, name)
        lease = money(leases, 1000, books)
        await granted(leases, lease, 100)
        async with asyncio.timeout(20):
            while not orphans.stats()["dead_workers"]:
                await asyncio.sleep(0.05)
        clock.ahead += RECORD_S
        async with asyncio.timeout(20):
            while not orphans.recorded(lease):
                await asyncio.sleep(0.05)
        await own.call("FLUSHALL")
        async with worker(own, database) as (others, _):
            its = money(others, 1000, books)
            async with asyncio.timeout(20):
                while await refused(others, its, 300):
                    await asyncio.sleep(0.1)
            await leases.refresh([lease], 0)
            assert await takes(others, its, 5, 50) == 0
            others.give([its], 300)
        books.settled = 500
        await drained(database, name)
        await granted(leases, lease, 390)


async def test_a_worker_that_was_only_out_of_reach_is_struck_off_the_record(own: State, database: Database) -> None:
    name = elsewhere()
    hold = OrphanedHold(name, KEY, "search", 5, 10, 1.0)
    await database.run(lambda connection: orphaned_holds.record(connection, [hold]))
    await drained(database, name)
    await database.run(lambda connection: orphaned_holds.record(connection, [hold]))
    async with worker(own, database, name=name) as (_, orphans):
        await orphans.refresh(0)
    assert await database.run(lambda c: c.execute(select(drained_workers.c.worker)).all(), writes=False) == []
    assert await database.run(orphaned_holds.held, writes=False) == []


async def test_after_a_while_what_the_dead_hold_counts_as_gone(own: State, database: Database) -> None:
    books, clock = Books(), Clock()
    async with worker(own, database, clock) as (leases, _):
        await die(own, books, elsewhere())
        lease = money(leases, 1000, books)
        await granted(leases, lease, 400)
        await asyncio.sleep(2 * TTL_S)
        await leases.refresh([lease], 0)
        assert (lease.left, lease.orphaned) == (1000, 0)
        clock.ahead += PATIENCE_S
        await leases.refresh([lease], 0)
        assert (lease.left, lease.orphaned) == (400, 600)


async def test_workers_of_versions_whose_journals_do_not_name_them_count_as_drained(
    own: State, database: Database
) -> None:
    books = Books()
    async with worker(own, database) as (leases, _):
        await die(own, books, "0badcafe-7f-0-aa")
        books.settled = 250
        await granted(leases, money(leases, 1000, books), 600)


def test_a_host_is_released_with_all_its_dead_and_the_audit_says_by_whom(any_database: Database) -> None:
    one, other, third = elsewhere("h-1"), elsewhere("h-1"), elsewhere("h-2")

    def work(connection: Connection) -> None:
        holds = [OrphanedHold(name, KEY, "search", 12_300_000_000, 500 * 10**9, 1.0) for name in (one, other, third)]
        orphaned_holds.record(connection, holds)
        orphaned_holds.record(connection, holds)
        assert len(orphaned_holds.held(connection)) == 3
        assert len(orphaned_holds.release(connection, "h-1", "cli")) == 2
        assert orphaned_holds.release(connection, "h-3", "cli") == []
        assert [each.worker for each in orphaned_holds.held(connection)] == [third]
        assert orphaned_holds.which_drained(connection, [one, other, third]) == {one, other}
        noted = connection.execute(select(audit.c.actor, audit.c.action, audit.c.subject, audit.c.detail)).all()
        said = "12.3000 USD of 500 USD held for team search, month from 2026-01-01"
        assert sorted(noted) == sorted(("cli", "ledger.release", name, said) for name in (one, other))

    with any_database.begin() as connection:
        work(connection)


@pytest.mark.parametrize(
    ("counter", "tag", "said", "team"),
    [
        (KEY, "search", "team search, month from 2026-01-01", "search"),
        (KEY.replace("team", "key:tgk_1"), "search", "team search, key:tgk_1, month from 2026-01-01", "search"),
        (
            KEY.replace("search", "organisation acme").replace(":team:", ":organisation:"),
            "organisation acme",
            "organisation acme, month from 2026-01-01",
            "",
        ),
        (
            KEY.replace("search", "search 0a1b").replace(":team:", ":end_user:"),
            "search 0a1b",
            "team search, an end user, month from 2026-01-01",
            "search",
        ),
    ],
)
def test_a_hold_says_whose_budget_it_is_of(counter: str, tag: str, said: str, team: str) -> None:
    hold = OrphanedHold(elsewhere(), counter, tag, 7, 10, 0.0)
    assert (hold.budget, hold.team, hold.host) == (said, team, "far")
