"""Old rows become sums: every total stays what it was, and the chain holds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from gateway.ledger.journal.append import append
from gateway.ledger.reports.dimensions import COLUMNS
from gateway.ledger.reports.report import Report, read_usage
from gateway.ledger.rows import MOST_PICO, Row
from gateway.ledger.store import anchor
from gateway.ledger.store.retention import DAY_S, count_old
from gateway.ledger.store.rollup import summed
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.verify import Verdict, verify
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger, ledger_rollups, ledger_sums
from tests.ledger.samples import row, write

NOW = 1_800_000_000.0
KEEP = 7
BY = [(name,) for name in COLUMNS if name != "session"] + [("team", "model", "day"), ("backend", "outcome", "hour")]


class Still:
    """A clock that stands at NOW."""

    def time(self) -> float:
        return NOW

    def monotonic(self) -> float:
        return NOW


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def random_rows(chance: random.Random, requests: int) -> Iterator[Row]:
    """Two weeks of requests of one to four attempts each, of every kind that there is."""
    for number in range(requests):
        request = f"req_{chance.randrange(16**8):08x}{number}"
        at = NOW - chance.uniform(0, 14 * DAY_S)
        facts: dict[str, Any] = {
            "team": chance.choice(["search", "shop"]),
            "key_id": chance.choice(["k1", "k2", "k3"]),
            "end_user": chance.choice(["", "eu_1", "eu_2"]),
            "cost_centre": chance.choice(["", "4711"]),
            "tags": chance.choice(["{}", '{"app":"shop"}', '{"app":"web","env":"x"}']),
            "session": chance.choice(["", "s1"]),
            "difficulty": chance.choice([None, 0.25, 0.5]),
            "stream": chance.random() < 0.5,
        }
        if chance.random() < 0.2:
            yield row(request, 0, at=at, cost_pico=0, saved_pico=chance.randrange(10**9), backend="", model="", **facts)
            continue
        for attempt in range(1, chance.choice([1, 1, 1, 2, 4]) + 1):
            yield row(
                request,
                attempt,
                at=at + attempt * chance.choice([1.0, 800.0]),
                backend=chance.choice(["small", "large"]),
                model=chance.choice(["m1", "m2"]),
                tier=chance.choice(["small", "large"]),
                outcome=chance.choice(["ok", "failed", "interrupted"]),
                input_tokens=chance.randrange(1000),
                cached_tokens=chance.choice([0, 500]),
                output_tokens=chance.choice([0, chance.randrange(1000)]),
                reasoning_tokens=chance.choice([0, 7]),
                image_tokens=chance.choice([0, 3]),
                received_bytes=chance.randrange(10**6),
                cost_pico=chance.choice([None, 0, chance.randrange(10**12), chance.randrange(10**12)]),
                estimated=chance.random() < 0.1,
                simulated=chance.random() < 0.1,
                **facts,
            )


def superseding(chance: random.Random, rows: list[Row]) -> Iterator[Row]:
    for one in rows:
        if one.cost_pico is None and chance.random() < 0.5:
            again = one._replace(id=f"{one.id}~1", cost_pico=chance.randrange(10**12), supersedes=one.id)
            yield again
            if chance.random() < 0.3:
                yield again._replace(id=f"{one.id}~2", cost_pico=5, supersedes=again.id)


def reports(database: Database, **period: float) -> list[Report]:
    with snapshot(database) as connection:
        return read_usage(connection, BY, **period)


def verdict(directory: Path, database: Database) -> Verdict:
    anchors = anchor.read(anchor.beside(directory))
    with snapshot(database) as connection:
        return verify(connection, anchors)


def retain(directory: Path, database: Database) -> int:
    async def run() -> int:
        writer = Writer(directory, database, keep_days=KEEP, clock=Still())
        try:
            return await writer.retain_all()
        finally:
            await writer.aclose()

    return asyncio.run(run())


def count(database: Database, table: Any) -> int:
    with database.read() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0


@pytest.mark.parametrize("batch", [7, 5000])
def test_totals_are_the_same_before_and_after(
    any_database: Database, directory: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.ledger.store.retention.BATCH", batch)
    chance = random.Random(batch)
    rows = sorted(random_rows(chance, 150), key=lambda one: one.at)
    half = len(rows) // 3
    write(directory, any_database, [*rows[:half], *superseding(chance, rows[:half]), *rows[half:]])
    write(directory, any_database, superseding(chance, rows[half:]))
    days = {"since": NOW // DAY_S * DAY_S - 10 * DAY_S, "until": NOW // DAY_S * DAY_S - 3 * DAY_S}
    india = {"since": days["since"] - 5.75 * 3600}
    before = [reports(any_database), reports(any_database, **days), reports(any_database, **india)]
    raw, old = count(any_database, ledger), old_rows(any_database)

    assert retain(directory, any_database) > 30
    assert [reports(any_database), reports(any_database, **days), reports(any_database, **india)] == before
    assert count(any_database, ledger) >= raw - old
    found = verdict(directory, any_database)
    assert found.findings == ()
    assert found.chains[0].removed == raw - count(any_database, ledger)
    assert retain(directory, any_database) == 0


def old_rows(database: Database) -> int:
    with database.read() as connection:
        return count_old(connection, KEEP, NOW)


def aged(number: int, **facts: Any) -> Row:
    return row(f"req_{number}", **{"at": NOW - 8 * DAY_S + number, **facts})


def test_rows_that_are_young_stay_and_so_do_those_behind_them(database: Database, directory: Path) -> None:
    write(directory, database, [aged(1), aged(2), aged(3, at=NOW - 60), aged(4)])
    assert retain(directory, database) == 2
    assert count(database, ledger) == 2
    assert verdict(directory, database).findings == ()


def test_a_row_from_the_future_holds_up_nobody(database: Database, directory: Path) -> None:
    write(directory, database, [aged(1), aged(2, at=NOW + 400 * DAY_S), aged(3)])
    assert retain(directory, database) == 3


def test_rows_older_than_chains_go_too(any_database: Database, directory: Path) -> None:
    with any_database.begin() as connection:
        connection.execute(ledger.insert(), [aged(number)._asdict() for number in range(5)])
    write(directory, any_database, [aged(9), row("req_new", at=NOW)])
    before = reports(any_database)
    assert retain(directory, any_database) == 6
    assert reports(any_database) == before
    found = verdict(directory, any_database)
    assert (found.outside, found.findings) == (0, ())


def test_what_was_removed_can_be_removed_no_further(any_database: Database, directory: Path) -> None:
    write(directory, any_database, [aged(number) for number in range(4)])
    assert retain(directory, any_database) == 4
    write(directory, any_database, [aged(5), row("req_new", at=NOW)])
    assert retain(directory, any_database) == 1
    assert [chain.removed for chain in verdict(directory, any_database).chains] == [5]
    with any_database.begin() as connection:
        connection.execute(update(ledger_sums).where(ledger_sums.c.number == 0).values(cost_pico=1))
    (found,) = verdict(directory, any_database).findings
    assert (found.what, found.seq) == ("its sums were altered", 5)


@pytest.mark.parametrize(
    ("name", "value"), [("rows", 3), ("last_seq", 3), ("after_hash", b"x" * 32), ("sums", 9), ("at", 1.5)]
)
def test_a_roll_up_is_an_entry_like_others(any_database: Database, directory: Path, name: str, value: Any) -> None:
    write(directory, any_database, [aged(number) for number in range(4)] + [row("req_new", at=NOW)])
    assert retain(directory, any_database) == 4
    with any_database.begin() as connection:
        connection.execute(update(ledger_rollups).values({name: value}))
    assert len(verdict(directory, any_database).findings) == 1


def test_altered_rows_are_not_laundered_into_sums(
    database: Database, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(directory, database, [aged(number) for number in range(4)])
    with database.begin() as connection:
        connection.execute(update(ledger).where(ledger.c.chain_seq == 2).values(cost_pico=1))
    assert retain(directory, database) == 0
    assert count(database, ledger) == 4
    assert "differ from what was written" in caplog.text


def test_a_row_that_replaces_one_that_stays_waits_for_it(database: Database, directory: Path, tmp_path: Path) -> None:
    """Else the one that it replaces would count again."""
    young = row("req_1", at=NOW)
    write(directory, database, [young])
    write(
        tmp_path / "other" / "journal", database, [aged(2), young._replace(id="req_1-1~1", at=1.0, supersedes=young.id)]
    )
    assert retain(directory, database) == 1


def test_sums_that_no_column_would_hold_are_split(any_database: Database, directory: Path) -> None:
    write(directory, any_database, [aged(number, cost_pico=MOST_PICO) for number in range(3)])
    before = reports(any_database)
    assert before[0].total.cost_pico == 3 * MOST_PICO
    assert retain(directory, any_database) == 3
    assert reports(any_database) == before


async def test_a_gateway_does_it_by_itself(database: Database, directory: Path) -> None:
    writer = Writer(directory, database, keep_days=KEEP, clock=Still())
    await asyncio.to_thread(append, directory, [aged(1), aged(2)], "test")
    assert await writer.drain_once() == 2
    assert writer.stats()["retained"] == 2
    await writer.aclose()


def test_sums_add_up_what_routing_would_have_done() -> None:
    rows = [
        Row(
            f"a{number}",
            f"r{number}",
            1,
            0.0,
            "",
            "",
            "",
            cost_pico=100,
            decided="tiny",
            decided_pico=pico,
            decided_ppm=9,
        )
        for number, pico in enumerate((10, 20, None))
    ]
    names = [column.name for column in ledger_sums.columns if column.name != "rollup"]
    lines = [dict(zip(names, line, strict=True)) for line in summed("roll", rows, set())]
    assert [(one["attempts"], one["decided"], one["decided_pico"], one["decided_ppm"]) for one in lines] == [
        (2, "tiny", 30, 18),
        (1, "tiny", None, 9),
    ]
