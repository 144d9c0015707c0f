"""The figures of whole days are stored, and are exact after anything that may change the ledger."""

from __future__ import annotations

import asyncio
import random
import zlib
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest
from sqlalchemy import delete, func, select, update
from sqlalchemy.schema import DropTable

from gateway.dashboard import cube, days
from gateway.dashboard.cube import Group
from gateway.dashboard.days import Day
from gateway.dashboard.periods import parse_period
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger, ledger_days
from tests.dashboard.samples import DAY, NOW, USD, put, row, traffic
from tests.fakes.clock import StoppedClock

ZONES = ("Europe/Madrid", "Pacific/Tongatapu")
KEEP_DAYS = 7
COST = 12
"""Place of the cost in the numbers of a group."""
Sums = dict[tuple[object, ...], list[int]]


def figures(database: Database, zone: str, team: str | None, *, keep: bool, period: str = "30") -> Sums:
    """Columns of the groups → sums of their numbers."""
    computed: list[Day] = []
    with snapshot(database) as connection:
        groups = cube.read(
            connection, parse_period(period, NOW, ZoneInfo(zone)), team, by_team=team is None, computed=computed
        )
    if keep:
        days.store(database, computed, NOW)
    return summed(groups)


def summed(groups: list[Group]) -> Sums:
    found: Sums = {}
    for group in groups:
        known = found.setdefault(group[:5], [0] * len(group.counts))
        known[:] = [one + other for one, other in zip(known, group.counts, strict=True)]
    return found


def read_all(database: Database, *, keep: bool) -> list[Sums]:
    return [figures(database, zone, team, keep=keep) for zone in ZONES for team in ("search", None)]


def agree(database: Database) -> None:
    """Figures with stored days are those that are computed from the ledger alone."""
    stored = read_all(database, keep=True)
    with database.begin() as connection:
        connection.execute(delete(ledger_days))
    assert stored == read_all(database, keep=True)
    assert stored == read_all(database, keep=False)


def many(chance: random.Random, requests: int) -> list[dict[str, Any]]:
    found = []
    for number in range(requests):
        facts: dict[str, Any] = {
            "at": NOW - chance.uniform(0, 20 * DAY),
            "team": chance.choice(("search", "chat")),
            "key_id": chance.choice(("key_shop", "key_help")),
            "cost_pico": chance.choice((None, 0, chance.randrange(9 * USD))),
            "outcome": chance.choice(("ok", "failed", "interrupted")),
        }
        attempts = chance.choice((0, 1, 1, 2))
        saved = chance.randrange(USD) if attempts == 0 else None
        places = range(1, attempts + 1) if attempts else (0,)
        found += [row(request_id=f"req_{number}", attempt=each, saved_pico=saved, **facts) for each in places]
    return found


def corrected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**one, "id": f"{one['id']}~1", "supersedes": one["id"], "cost_pico": 7}
        for one in rows
        if one["cost_pico"] is None
    ]


def test_figures_are_exact_after_late_rows_corrections_and_a_retention_run(
    any_database: Database, tmp_path: Path
) -> None:
    chance = random.Random(5)
    rows = many(chance, 150)
    fill(any_database, *rows)
    agree(any_database)
    fill(any_database, *[{**one, "id": f"late-{one['id']}", "request_id": "late"} for one in rows[:9]])
    agree(any_database)
    fill(any_database, *corrected(rows))
    agree(any_database)
    retain(any_database, tmp_path)
    agree(any_database)
    fill(any_database, *[{**one, "id": f"later-{one['id']}", "request_id": "later"} for one in rows[-9:]])
    agree(any_database)


def fill(database: Database, *rows: dict[str, Any]) -> None:
    asyncio.run(put(database, *rows))


def retain(database: Database, folder: Path) -> None:
    async def run() -> int:
        writer = Writer(folder / "journal", database, keep_days=KEEP_DAYS, clock=StoppedClock(NOW))
        try:
            return await writer.retain_all()
        finally:
            await writer.aclose()

    assert asyncio.run(run())


def test_a_retention_run_deletes_stored_days_whose_number_of_rows_may_come_back(
    database: Database, tmp_path: Path
) -> None:
    """A batch of superseded rows leaves no sums. As many late rows would give the day its old numbers."""
    first = row(at=NOW - 10 * DAY, cost_pico=None)
    last = {**first, "id": "again", "supersedes": first["id"], "cost_pico": USD, "at": NOW - DAY}
    fill(database, first, last)
    agree(database)
    retain(database, tmp_path)
    fill(database, row(at=NOW - 10 * DAY, cost_pico=3 * USD))
    agree(database)


def test_a_stored_day_is_used_instead_of_the_ledger(any_database: Database) -> None:
    asyncio.run(traffic(any_database))
    before = figures(any_database, "UTC", "search", keep=True)
    with any_database.begin() as connection:  # no process changes a row, so this cannot be seen in their number
        connection.execute(update(ledger).values(cost_pico=USD))
    after = figures(any_database, "UTC", "search", keep=True)
    today = {columns for columns in before if columns[0] == int(NOW // DAY)}
    assert {one: after[one] for one in before if one not in today} == {
        one: before[one] for one in before if one not in today
    }
    assert {one: after[one] for one in today} != {one: before[one] for one in today}


def test_one_teams_stored_days_are_not_shown_to_another(database: Database) -> None:
    fill(database, row(at=NOW - 3 * DAY), row(at=NOW - 3 * DAY, team="chat", key_id="key_chat", cost_pico=7 * USD))
    figures(database, "UTC", None, keep=True)
    for team, cost in (("search", USD), ("chat", 7 * USD)):
        found = figures(database, "UTC", team, keep=True)
        again = figures(database, "UTC", team, keep=True)
        assert found == again
        assert sum(counts[COST] for counts in again.values()) == cost


def test_the_day_that_has_not_ended_is_not_stored_and_neither_are_hours(database: Database) -> None:
    fill(database, row(), row(at=NOW - DAY))
    figures(database, "UTC", "search", keep=True, period="2")
    assert count(database) == 0
    figures(database, "UTC", "search", keep=True, period="3")
    assert count(database) == 1


def test_a_stored_day_of_another_form_is_computed_again(database: Database) -> None:
    fill(database, row(at=NOW - DAY))
    before = figures(database, "UTC", "search", keep=True)
    with database.begin() as connection:
        body = zlib.compress(orjson.dumps([["older form"], ["", "large", "big", "key_shop", "1 2 3"]]))
        connection.execute(update(ledger_days).values(body=body))
    assert figures(database, "UTC", "search", keep=True) == before


def test_days_of_long_ago_are_not_stored_and_a_failure_to_store_is_no_failure_of_the_page(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    day = Day("search", NOW - 500 * DAY, NOW - 499 * DAY, (1, 0), [])
    days.store(database, [day], NOW)
    assert count(database) == 0
    with database.begin() as connection:
        connection.execute(DropTable(ledger_days))
    with caplog.at_level("INFO"):
        days.store(database, [day._replace(since=NOW - DAY, until=NOW)], NOW)
    assert "not stored" in caplog.text


def count(database: Database) -> int:
    with database.read() as connection:
        return connection.scalar(select(func.count()).select_from(ledger_days)) or 0


@pytest.mark.parametrize(
    ("zone", "now"),
    [
        ("Europe/Madrid", "2026-11-02T09:00:00+01:00"),  # 25 hours on October 25
        ("America/New_York", "2026-03-20T09:00:00-04:00"),  # 23 hours on March 8
        ("America/Havana", "2026-03-20T09:00:00-04:00"),  # March 8 began at 1 o'clock
        ("Australia/Lord_Howe", "2026-04-20T09:00:00+10:30"),  # the clocks changed by half an hour
        ("Pacific/Tongatapu", "2027-01-15T00:30:00+13:00"),  # yesterday in UTC
        ("Pacific/Apia", "2012-01-10T09:00:00+14:00"),  # December 30 was left out
    ],
)
def test_each_row_counts_on_the_day_that_the_clocks_of_the_zone_show(database: Database, zone: str, now: str) -> None:
    ends, clocks = datetime.fromisoformat(now).timestamp(), ZoneInfo(zone)
    chance = random.Random(3)
    moments = [ends - chance.uniform(0, 28 * DAY) for _ in range(200)]
    fill(database, *(row(at=at, cost_pico=number) for number, at in enumerate(moments)))
    expected: dict[date, int] = {}
    for number, at in enumerate(moments):
        day = datetime.fromtimestamp(at, clocks).date()
        expected[day] = expected.get(day, 0) + number
    for _ in range(2):  # computed, then stored
        computed: list[Day] = []
        with snapshot(database) as connection:
            groups = cube.read(connection, parse_period("30", ends, clocks), "search", computed=computed)
        days.store(database, computed, ends)
        found: dict[date, int] = {}
        for group in groups:
            day = date(1970, 1, 1) + timedelta(days=group.step)
            found[day] = found.get(day, 0) + group.cost_pico
        assert found == expected
    assert not computed


def test_no_row_a_single_row_and_sums_of_more_than_64_bits(database: Database) -> None:
    agree(database)
    fill(database, row(at=NOW - 2 * DAY, cost_pico=1))
    agree(database)
    fill(database, *(row(at=NOW - 2 * DAY, cost_pico=2**63 - 1) for _ in range(3)))
    agree(database)
    found = figures(database, "UTC", "search", keep=False)
    assert sum(counts[COST] for counts in found.values()) == 3 * (2**63 - 1) + 1
