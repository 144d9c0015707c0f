"""Spent is what is in the ledger and what still waits in journals, each attempt once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import OperationalError

from gateway.domain.protocols import BudgetChecker, Subject
from gateway.errors import LedgerUnavailable
from gateway.ledger.spent import Spending
from gateway.ledger.store.writer import Writer
from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from tests.ledger.samples import COST, SIMULATED, UNPRICED, begin, finish, journal, record, spend


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def pico(spending: Spending, team: str, since: float) -> int:
    return (await spending.spent(BudgetChecker(team=team), since)).pico


async def test_drained_or_not_each_attempt_counts_once(any_database: Database, directory: Path) -> None:
    books = journal(directory)
    await books.start()
    writer, spending = Writer(directory, any_database), Spending(directory, any_database)
    entry = record()
    books.open(begin(entry), entry)  # still open: it pins the journal, and is not spent yet
    assert await pico(spending, "search", 0.0) == 0
    for number in range(1, 7):
        spend(books)
        assert await pico(spending, "search", 0.0) == number * COST
        if number % 2:
            await writer.drain_once()
            assert await pico(spending, "search", 0.0) == number * COST
    await books.aclose()
    await writer.aclose()


async def test_only_the_team_the_time_and_real_money_count(database: Database, directory: Path) -> None:
    books = journal(directory)
    await books.start()
    spend(books, at=100.0)
    spend(books, at=200.0)
    spend(books, "other", at=200.0)
    spend(books, backend=SIMULATED, at=200.0)
    spend(books, backend=UNPRICED, at=200.0)
    spending, writer = Spending(directory, database), Writer(directory, database)
    for _ in range(2):
        assert await pico(spending, "search", 100.0) == 2 * COST
        assert await pico(spending, "search", 100.5) == COST
        assert await pico(spending, "other", 0.0) == COST
        assert await pico(spending, "nobody", 0.0) == 0
        await writer.drain_once()
    await books.aclose()
    await writer.aclose()


async def test_it_is_never_more_nor_less_while_the_writer_drains_and_deletes(
    any_database: Database, directory: Path
) -> None:
    """Read as fast as possible while rows move from the journal into the ledger."""
    books = journal(directory, mark_s=0.005, segment_bytes=1500)
    await books.start()
    writer, spending, tasks = (
        Writer(directory, any_database, interval_s=0.001),
        Spending(directory, any_database),
        Tasks(),
    )
    tasks.spawn(writer.run(), "writer")
    spent = 0
    for _ in range(25):
        for _ in range(4):
            spend(books)
            spent += COST
        assert await pico(spending, "search", 0.0) == spent
    await tasks.aclose()
    await books.aclose()
    await writer.aclose()


async def test_a_sum_beyond_64_bits_is_exact(any_database: Database, directory: Path) -> None:
    """Forty attempts of nearly a million dollars each."""
    row: dict[str, Any] = {column.name: "" for column in ledger.columns if column.type.python_type is str}
    row |= {"attempt": 1, "at": 1.0, "team": "search", "stream": False, "cost_pico": 999_999_999_999_999_999}
    await any_database.run(
        lambda connection: connection.execute(insert(ledger), [{**row, "id": f"a{number}"} for number in range(40)])
    )
    assert await pico(Spending(directory, any_database), "search", 0.0) == 40 * 999_999_999_999_999_999


async def test_a_ledger_that_is_away_is_said_so(database: Database, directory: Path) -> None:
    def refuse() -> None:
        raise OperationalError("statement", {}, Exception("gone"))

    database.engine.connect = lambda *_: refuse()  # type: ignore[method-assign]
    with pytest.raises(LedgerUnavailable):
        await pico(Spending(directory, database), "search", 0.0)


async def test_no_journal_at_all_is_no_spend(database: Database, directory: Path) -> None:
    assert await pico(Spending(directory, database), "search", 0.0) == 0


async def test_what_a_dead_worker_left_open_counts_as_far_as_it_came(any_database: Database, directory: Path) -> None:
    books = journal(directory)
    await books.start()
    entry = record()
    books.open(attempt := begin(entry), entry)
    attempt.came(2000, 7)
    spending, writer = Spending(directory, any_database), Writer(directory, any_database)
    assert await pico(spending, "search", 0.0) == 0
    await books.aclose()  # as if it had been killed: the attempt is still open, and nobody holds the lane's lock
    before = await spending.spent(BudgetChecker(team="search"), 0.0)
    assert before.tokens >= 7
    assert before.pico > 0
    await writer.drain_once()
    assert await spending.spent(BudgetChecker(team="search"), 0.0) == before
    await writer.aclose()


@pytest.mark.parametrize("by", ["session", "end_user"])
async def test_sessions_and_end_users_are_summed_each_by_itself(
    database: Database, directory: Path, by: Subject
) -> None:
    books = journal(directory)
    await books.start()
    spending, writer = Spending(directory, database), Writer(directory, database)
    for drained in (False, True):
        for name in ("a", "a", "b", ""):
            entry = record()
            setattr(entry, by, name)
            attempt = begin(entry)
            books.open(attempt, entry)
            books.close(finish(attempt), entry)
        found = await spending.spent_by_each(by, "search", 0.0, float("inf"), ["a", "b", "c"])
        assert {name: one.pico // COST for name, one in found.items()} == {"a": 2 + 2 * drained, "b": 1 + drained}
        await writer.drain_once()
    await books.aclose()
    await writer.aclose()
