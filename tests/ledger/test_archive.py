"""What rows tell of a request: to its own team, in a flight record's shape, or nothing when they cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.domain.money.usage import Usage
from gateway.domain.record import Record
from gateway.ledger.journal.writer import Journal
from gateway.ledger.store.archive import Archive
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from gateway.telemetry.flight import flight
from tests.ledger.samples import COST, LARGE, UNPRICED, USAGE, begin, finish, journal, record


async def drained(books: Journal, directory: Path, database: Database) -> None:
    await books.aclose()
    writer = Writer(directory, database)
    await writer.drain_once()
    await writer.aclose()


def called(books: Journal, entry: Record, outcome: Any = "ok", **options: Any) -> None:
    attempt = begin(entry, **options)
    books.open(attempt, entry)
    attempt.first_byte_at, attempt.ended_at = attempt.started_at + 0.04, attempt.started_at + 0.1
    books.close(finish(attempt, outcome=outcome), entry)


async def test_a_plain_request_is_told_as_its_flight_record_would(any_database: Database, tmp_path: Path) -> None:
    books = journal(tmp_path)
    await books.start()
    seen = record(cache="miss", cost_pico=COST, tags={"feature": "x"}, session="s", difficulty=0.25, finish="stop")
    called(books, seen, at=seen.started_at)
    other = record()
    called(books, other)
    await drained(books, tmp_path, any_database)
    seen.first_byte_ms, seen.duration_ms = 40.0, 100.0
    full = flight(seen)
    found = await Archive(any_database).find(seen.request_id, "search")
    assert found is not None
    assert found.keys() == full.keys()
    assert [one.keys() for one in found["attempts"]] == [one.keys() for one in full["attempts"]]
    assert found | {"first_byte_ms": 40.0, "duration_ms": 100.0} == full | {"source": "ledger", "finish": None}
    assert abs(found["first_byte_ms"] - 40.0) < 0.01
    assert abs(found["duration_ms"] - 100.0) < 0.01
    assert orjson.loads(orjson.dumps(found)) == found


async def test_another_team_finds_nothing(database: Database, tmp_path: Path) -> None:
    books = journal(tmp_path)
    await books.start()
    seen = record("search")
    called(books, seen)
    await drained(books, tmp_path, database)
    archive = Archive(database)
    assert await archive.find(seen.request_id, "search") is not None
    for team in ("other", "", "search%"):
        assert await archive.find(seen.request_id, team) is None
    for id in ("", "req", seen.request_id[:-1], f"{seen.request_id}-1", "%", seen.request_id.upper()):
        assert await archive.find(id, "search") is None


async def test_all_attempts_of_a_request_are_told_and_which_of_them_served(database: Database, tmp_path: Path) -> None:
    books = journal(tmp_path)
    await books.start()
    seen = record()
    at = seen.started_at
    called(books, seen, "failed", backend=UNPRICED, at=at)
    seen.escalated = True
    called(books, seen, "escalated", at=at + 1)
    called(books, seen, at=at + 2)
    await drained(books, tmp_path, database)
    found = await Archive(database).find(seen.request_id, "search")
    assert found is not None
    assert [one["outcome"] for one in found["attempts"]] == ["failed", "escalated", "ok"]
    assert [one["id"][-2:] for one in found["attempts"]] == ["-1", "-2", "-3"]
    assert (found["status"], found["error"], found["escalated"]) == (200, None, True)
    assert [found["attempts"][0]["cost_usd"], found["cost_usd"]] == [None, "0.000101"]
    assert abs(found["first_byte_ms"] - 2040) < 0.01
    assert abs(found["duration_ms"] - 2100) < 0.01


async def test_an_answer_from_the_cache_has_no_attempts_and_says_what_it_saved(
    database: Database, tmp_path: Path
) -> None:
    books = journal(tmp_path)
    await books.start()
    seen = record(cache="exact")
    seen.stream = True
    books.cached(seen, USAGE, 12_000_000)
    await drained(books, tmp_path, database)
    found = await Archive(database).find(seen.request_id, "search")
    assert found is not None
    assert (found["attempts"], found["cache"], found["stream"], found["status"]) == ([], "exact", True, 200)
    assert (found["cost_usd"], found["saved_usd"]) == ("0", "0.000012")


async def test_what_was_cut_off_says_so_and_not_what_the_client_was_told(database: Database, tmp_path: Path) -> None:
    books = journal(tmp_path)
    await books.start()
    seen = record()
    attempt = begin(seen, LARGE)
    books.open(attempt, seen)
    attempt.error = "timeout"
    books.close(finish(attempt, Usage(10, estimated=True), "interrupted"), seen)
    await drained(books, tmp_path, database)
    found = await Archive(database).find(seen.request_id, "search")
    assert found is not None
    assert (found["status"], found["error"]) == (None, "timeout")
    assert found["attempts"][0]["estimated"] is True


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{tmp_path / 'nowhere' / 'ledger.db'}")
    yield found
    found.close()


async def test_while_the_ledger_is_away_nothing_is_found(away: Database, caplog: pytest.LogCaptureFixture) -> None:
    assert await Archive(away).find("req_1", "search") is None
    assert "cannot be looked up in the ledger: OperationalError" in caplog.text
