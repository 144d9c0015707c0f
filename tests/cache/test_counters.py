from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import Connection, text

from gateway.cache.quality.counters import QUARTER_S, HitCounters, read
from gateway.state.sql.database import Database

NOW = 1_800_014_400.0


class At:
    """A clock that stands."""

    def __init__(self, at: float = NOW) -> None:
        self.at = at

    def time(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def some(measures: HitCounters, team: str, *, lookups: int, hits: int, wrong: int = 0, right: int = 0) -> None:
    for number in range(lookups):
        measures.looked(team, hit=number < hits)
    for number in range(wrong + right):
        measures.checked(team, wrong=number < wrong, probability=0.5)


async def test_workers_add_up_and_each_team_has_its_own(any_database: Database) -> None:
    one, two = (HitCounters(any_database, clock=At()) for _ in range(2))
    some(one, "search", lookups=100, hits=40, wrong=1, right=9)
    some(two, "search", lookups=100, hits=20, right=10)
    some(two, "chat", lookups=7, hits=1)
    one.checked("search", wrong=None, probability=0.5)
    two.called_wrong("search")
    await asyncio.gather(one.write(), two.write())
    await one.write()  # nothing waits any more
    some(one, "search", lookups=100, hits=0)
    await one.aclose()
    told = await any_database.run(lambda link: read(link, team="search"), writes=False)
    assert list(told) == ["search"]
    found = told["search"].as_object()
    low, high = found.pop("interval")
    assert found == {
        "lookups": 300,
        "hits": 60,
        "checked": 20,
        "wrong": 1,
        "undecided": 1,
        "called_wrong": 1,
        "wrong_of_lookups": pytest.approx(0.05 * 60 / 300),
        "wrong_of_hits": pytest.approx(0.05),
    }
    assert 0 < low < 0.01 < high < 0.06
    assert list(await any_database.run(read, writes=False)) == ["chat", "search"]


async def test_a_period_has_the_quarters_that_it_touches(database: Database) -> None:
    clock = At()
    measures = HitCounters(database, clock=clock)
    for quarter in range(4):
        clock.at = NOW + quarter * QUARTER_S + 100
        some(measures, "search", lookups=10**quarter, hits=0)
    await measures.write()

    async def lookups(since: float | None, until: float | None) -> int:
        told = await database.run(lambda link: read(link, since=since, until=until), writes=False)
        return sum(one.measured.lookups for one in told.values())

    assert await lookups(None, None) == 1111
    assert await lookups(NOW + QUARTER_S, None) == 1110
    assert await lookups(NOW + QUARTER_S + 500, NOW + 2 * QUARTER_S) == 10
    assert await lookups(NOW + 4 * QUARTER_S, None) == 0


async def test_what_cannot_be_written_waits(database: Database) -> None:
    measures = HitCounters(database, clock=At())
    some(measures, "search", lookups=3, hits=1)
    await database.run(lambda link: link.execute(text("ALTER TABLE hit_checks RENAME TO away")))
    await measures.write()
    some(measures, "search", lookups=2, hits=1)
    measures.called_wrong("search")
    await measures.write()
    await database.run(lambda link: link.execute(text("ALTER TABLE away RENAME TO hit_checks")))
    await measures.write()

    def totals(link: Connection) -> tuple[int, int, int]:
        one = read(link)["search"]
        return one.measured.lookups, one.measured.hits, one.called_wrong

    assert await database.run(totals, writes=False) == (5, 2, 1)
