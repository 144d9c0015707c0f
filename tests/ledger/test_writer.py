"""Every row reaches the ledger once, whatever dies or comes back in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from gateway.domain.money.usage import Usage
from gateway.ledger.journal import segments
from gateway.ledger.rows import Row
from gateway.ledger.store.verify import verify
from gateway.ledger.store.writer import Writer
from gateway.runtime.tasks import Tasks
from gateway.state.leases import orphaned_holds
from gateway.state.sql.database import Database
from tests.ledger.samples import (
    COST,
    LARGE,
    SIMULATED,
    UNPRICED,
    begin,
    finish,
    journal,
    ledger_rows,
    record,
    row,
    spend,
    write,
)
from tests.support.waiting import until


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def drained_rows(database: Database) -> list[dict[str, Any]]:
    return ledger_rows(database)


def held(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.journal"))


@contextmanager
def away(database: Database) -> Iterator[None]:
    """The database refuses every statement, as when its server is gone."""

    def refuse(*_: Any) -> None:
        raise OperationalError("statement", {}, Exception("the server closed the connection"))

    event.listen(database.engine, "before_cursor_execute", refuse)
    try:
        yield
    finally:
        event.remove(database.engine, "before_cursor_execute", refuse)


async def test_rows_arrive_while_the_worker_lives(any_database: Database, directory: Path) -> None:
    books = journal(directory)
    await books.start()
    heard: list[Row] = []
    writer = Writer(directory, any_database, on_rows=heard.extend)
    ids = [spend(books, tags={"app": "shop"}).id for _ in range(5)]
    assert await writer.drain_once() == 5
    ids += [spend(books, backend=UNPRICED).id, spend(books, backend=SIMULATED).id]
    assert await writer.drain_once() == 2
    assert await writer.drain_once() == 0
    rows = drained_rows(any_database)
    assert sorted(row["id"] for row in rows) == sorted(ids)
    assert [row.id for row in heard] == ids
    assert [row["cost_pico"] for row in rows].count(COST) == 5
    assert [row["simulated"] for row in rows].count(True) == 1
    assert rows[0]["tags"] == '{"app":"shop"}'
    await books.aclose()
    await writer.aclose()


def test_rows_with_and_without_a_traffic_class_come_back_as_they_were_written(
    any_database: Database, directory: Path
) -> None:
    kinds: list[dict[str, Any]] = [{}, {"stream": True}, {"agent": "codex"}, {"stream": True, "waited_ms": 7}]
    classes = [{}, {"traffic_class": "es/text/opening"}]
    rows = [row(f"r{n}", **facts, **named) for n, (facts, named) in enumerate(product(kinds, classes))]
    write(directory, any_database, rows)
    assert [Row(**{name: found[name] for name in Row._fields}) for found in ledger_rows(any_database)] == rows
    with any_database.read() as connection:
        assert not verify(connection, None).findings


async def test_a_dead_workers_open_attempts_are_interrupted_with_what_was_delivered(
    any_database: Database, directory: Path
) -> None:
    books = journal(directory, mark_s=0.01)
    await books.start()
    entry = record()
    streamed, silent, mystery = begin(entry, tokens=100), begin(entry, tokens=50), begin(entry, UNPRICED, tokens=9)
    for attempt in (streamed, silent, mystery):
        books.open(attempt, entry)
    streamed.chunks, streamed.output_bytes = 40, 8000
    size = books.stats()["segment_bytes"]
    await until(lambda: books.stats()["segment_bytes"] != size)
    writer = Writer(directory, any_database)
    assert await writer.drain_once() == 0
    await books.aclose()  # the lock is let go as when the process dies
    assert await writer.drain_once() == 3
    rows = {row["id"]: row for row in drained_rows(any_database)}
    assert {row["outcome"] for row in rows.values()} == {"interrupted"}
    assert all(row["estimated"] for row in rows.values())
    assert (rows[streamed.id]["input_tokens"], rows[streamed.id]["output_tokens"]) == (100, 40)
    assert rows[streamed.id]["cost_pico"] == 100 * 10**6 + 40 * 2 * 10**6
    assert rows[silent.id]["cost_pico"] == 50 * 10**6
    assert rows[mystery.id]["cost_pico"] is None
    assert held(directory) == []
    await writer.aclose()


async def test_a_worker_is_drained_once_all_it_left_is_in_the_ledger(any_database: Database, directory: Path) -> None:
    name = "0bad-7f-0-aa@host-1.example"
    books, writer = journal(directory, leases_as=name), Writer(directory, any_database)

    async def drained() -> bool:
        found = await any_database.run(partial(orphaned_holds.which_drained, workers=[name]), writes=False)
        return bool(found)

    await books.start()
    entry = record()
    attempt = begin(entry)
    books.open(attempt, entry)
    spend(books)
    assert await writer.drain_once() == 1
    assert not await drained()
    await books.aclose()
    with away(any_database), pytest.raises(SQLAlchemyError):
        await writer.drain_once()
    assert not await drained()
    assert await writer.drain_once() == 1
    assert await drained()
    await writer.aclose()


async def test_an_attempt_may_close_in_a_later_segment_than_it_opened(database: Database, directory: Path) -> None:
    books = journal(directory, mark_s=0.01, segment_bytes=1500)
    await books.start()
    writer = Writer(directory, database)
    entry = record()
    slow = begin(entry)
    books.open(slow, entry)
    ids = [slow.id]
    while int(books.stats()["segment"]) < 4:
        ids.append(spend(books).id)
        await writer.drain_once()
    assert len(held(directory)) >= 4  # the first is needed until its attempt has closed
    books.close(finish(slow), entry)
    async with asyncio.timeout(30):
        while len(held(directory)) > 2:  # the last roll may still be under way
            await writer.drain_once()
    assert sorted(row["id"] for row in drained_rows(database)) == sorted(ids)
    await books.aclose()
    await writer.drain_once()
    assert held(directory) == []
    assert len(drained_rows(database)) == len(ids)
    await writer.aclose()


async def test_a_writer_that_takes_over_goes_on_where_the_last_one_was(database: Database, directory: Path) -> None:
    books = journal(directory)
    await books.start()
    entry = record()
    slow = begin(entry)
    books.open(slow, entry)
    ids = [slow.id]
    for _ in range(6):
        ids.append(spend(books).id)
        heard: list[Row] = []
        writer = Writer(directory, database, on_rows=heard.extend)
        assert await writer.drain_once() == 1
        assert [row.id for row in heard] == ids[-1:]
        await writer.aclose()
    books.close(finish(slow), entry)
    await books.aclose()
    writer = Writer(directory, database)
    await writer.drain_once()
    assert sorted(row["id"] for row in drained_rows(database)) == sorted(ids)
    assert {row["outcome"] for row in drained_rows(database)} == {"ok"}
    await writer.aclose()


async def test_only_one_writer_of_a_host_drains(database: Database, directory: Path) -> None:
    books = journal(directory)
    await books.start()
    spend(books)
    first, second = Writer(directory, database), Writer(directory, database)
    assert await first.drain_once() == 1
    spend(books)
    assert await second.drain_once() == 0
    await first.aclose()
    assert await second.drain_once() == 1
    await second.aclose()
    await books.aclose()


async def test_a_closed_row_is_never_replaced(database: Database, directory: Path) -> None:
    books = journal(directory)
    await books.start()
    attempt = spend(books)
    writer = Writer(directory, database)
    await writer.drain_once()
    entry = record()
    impostor = begin(entry)
    impostor.id = attempt.id
    books.open(impostor, entry)
    books.close(finish(impostor, Usage(999)), entry)
    await books.aclose()
    await writer.drain_once()
    (row,) = drained_rows(database)
    assert row["cost_pico"] == COST
    await writer.aclose()


async def test_a_database_that_is_away_loses_nothing_and_is_heard_of_once(
    database: Database, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    books = journal(directory)
    await books.start()
    writer = Writer(directory, database, interval_s=0.01)
    tasks = Tasks()
    with away(database):
        tasks.spawn(writer.run(), "writer")
        for _ in range(20):
            spend(books)
        await until(lambda: int(writer.stats()["errors"]) >= 3)
        assert float(writer.stats()["lag_s"]) > 0
    await until(lambda: writer.stats()["drained"] == 20 and writer.stats()["lag_s"] == 0)
    await tasks.aclose()
    messages = [entry.message for entry in caplog.records if entry.name == "gateway.ledger.store.writer"]
    assert len(messages) == 2
    assert "cannot be drained" in messages[0]
    assert "again" in messages[1]
    assert writer.stats()["lag_s"] == 0
    assert len(drained_rows(database)) == 20
    await books.aclose()
    await writer.aclose()


async def test_a_transaction_that_fails_halfway_is_repeated_whole(database: Database, directory: Path) -> None:
    books = journal(directory)
    await books.start()
    for _ in range(3):
        spend(books)
    writer = Writer(directory, database)
    failures = iter([True])

    def fail_once(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "journal_offsets" in statement and statement.startswith("INSERT") and next(failures, False):
            raise OperationalError(statement, {}, Exception("disk I/O error"))

    event.listen(database.engine, "before_cursor_execute", fail_once)
    with pytest.raises(SQLAlchemyError):
        await writer.drain_once()
    assert drained_rows(database) == []
    assert await writer.drain_once() == 3
    await books.aclose()
    await writer.aclose()


@pytest.mark.heavy
async def test_text_that_postgresql_refuses_is_cut_and_the_others_go_through(
    postgres_url: str, directory: Path
) -> None:
    database = Database(postgres_url)
    database.upgrade()
    books = journal(directory)
    await books.start()
    spend(books)
    entry = record(session="nul \0 here", tags={"x": "y"})
    entry.model = "m" * 500
    attempt = begin(entry)
    books.open(attempt, entry)
    books.close(finish(attempt), entry)
    writer = Writer(directory, database)
    assert await writer.drain_once() == 2
    row = next(row for row in drained_rows(database) if row["id"] == attempt.id)
    assert (row["session"], len(row["model_asked"]), row["cost_pico"]) == ("nul  here", 200, COST)
    assert writer.stats()["refused"] == 0
    await books.aclose()
    await writer.aclose()
    database.close()


async def test_a_row_that_the_database_refuses_is_kept_aside_and_stops_no_other(
    database: Database, directory: Path
) -> None:
    trigger = "CREATE TRIGGER no_b BEFORE INSERT ON ledger WHEN NEW.session = 'b' BEGIN SELECT RAISE(ABORT, 'no'); END"
    await database.run(lambda connection: connection.execute(text(trigger)))
    books = journal(directory)
    await books.start()
    for session in ("a", "b", "c"):
        entry = record(session=session)
        attempt = begin(entry)
        books.open(attempt, entry)
        books.close(finish(attempt), entry)
    writer = Writer(directory, database)
    assert await writer.drain_once() == 2
    assert [row["session"] for row in drained_rows(database)] == ["a", "c"]
    assert writer.stats()["refused"] == 1
    assert '"session":"b"' in drained_text(directory / "refused.jsonl")
    await books.aclose()
    await writer.aclose()


def drained_text(path: Path) -> str:
    return path.read_text()


async def test_a_journal_that_an_older_version_wrote_is_still_read(database: Database, directory: Path) -> None:
    books = journal(directory)
    await books.start()
    kept, open_ = spend(books), record()
    books.open(begin(open_), open_)
    await books.aclose()
    without(directory, "region", "price_source")
    writer = Writer(directory, database)
    assert await writer.drain_once() == 2
    rows = {row["id"]: row for row in drained_rows(database)}
    assert (rows[kept.id]["cost_pico"], rows[kept.id]["price_source"]) == (COST, "")
    await writer.aclose()


def without(directory: Path, *dropped: str) -> None:
    """Rewrite the journal as a version would that did not know some fields, and had another."""
    for (segment,) in segments.lanes(directory).values():
        out = []
        for number, line in enumerate(segment.path.read_bytes().splitlines()):
            payload = segments.checked(line)
            assert payload is not None
            entry = orjson.loads(payload)
            if number == 0:
                fields = entry["fields"]
                entry["fields"] = ["long_gone", *(name for name in fields if name not in dropped)]
            for key in ("open", "close"):
                if key in entry:
                    known = zip(fields, entry[key], strict=False)
                    entry[key] = ["old", *(value for name, value in known if name not in dropped)]
            out.append(segments.encode(entry))
        segment.path.write_bytes(b"".join(out))


CLOSE, OPEN = b'{"close"', b'{"open"'


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 10**6), garbage=st.sampled_from([b"", b"\0" * 50, b"deadbeef {}", b"\n\n\n", b"\xff\n"]))
def test_a_journal_cut_anywhere_gives_back_every_whole_line(
    tmp_path_factory: pytest.TempPathFactory, whole_journal: tuple[list[str], bytes], cut: int, garbage: bytes
) -> None:
    ids, content = whole_journal
    cut %= len(content) + 1
    directory = tmp_path_factory.mktemp("cut")
    segments.Segment.at(directory, "lane-1", 1).path.write_bytes(content[:cut] + garbage)
    database = Database(f"sqlite:///{directory}/ledger.sqlite")
    database.upgrade()
    for _ in range(2):
        writer = Writer(directory, database)
        writer._drain()
        writer._release()
    # The garbage's line end may complete a line that was cut just before its own.
    whole = (content[:cut] + garbage[: garbage.startswith(b"\n")]).split(b"\n")[:-1]
    closed, opened = ([line for line in whole if mark in line and line + b"\n" in content] for mark in (CLOSE, OPEN))
    rows = ledger_rows(database)
    assert sum(row["outcome"] == "ok" for row in rows) == len(closed)
    assert len(rows) == len(opened)
    assert {row["id"] for row in rows} <= set(ids)
    assert held(directory) == []
    database.close()


@pytest.fixture(scope="module")
def whole_journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], bytes]:
    directory = tmp_path_factory.mktemp("whole")

    async def write() -> list[str]:
        books = journal(directory)
        await books.start()
        ids = [spend(books, backend=LARGE).id for _ in range(8)]
        await books.aclose()
        return ids

    ids = asyncio.run(write())
    (files,) = segments.lanes(directory).values()
    return ids, files[0].path.read_bytes()


async def test_many_workers_are_drained_in_one_go(database: Database, directory: Path) -> None:
    books = [journal(directory, worker=f"w{number}") for number in range(20)]
    for one in books:
        await one.start()
        spend(one)
    writer = Writer(directory, database)
    assert await writer.drain_once() == 20
    for one in books:
        await one.aclose()
    await writer.drain_once()
    assert held(directory) == []
    await writer.aclose()


async def test_lines_written_while_the_worker_rolls_are_not_passed_over(database: Database, directory: Path) -> None:
    books = journal(directory, mark_s=0.001, segment_bytes=1500)
    await books.start()
    writer = Writer(directory, database)
    ids = []
    while int(books.stats()["segment"]) < 8:
        ids.append(spend(books).id)
        if len(ids) % 3 == 0:
            await writer.drain_once()
    await books.aclose()
    await writer.drain_once()
    assert sorted(row["id"] for row in drained_rows(database)) == sorted(ids)
    await writer.aclose()
