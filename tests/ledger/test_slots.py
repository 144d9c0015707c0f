"""What a killed worker had received counts to the last piece, as long as the machine stays up."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.domain.money.pace import Pace
from gateway.domain.record import Attempt
from gateway.domain.request import DialectName
from gateway.errors import LedgerUnavailable
from gateway.ledger.journal import slots
from gateway.ledger.journal.writer import Journal
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from tests.ledger.samples import begin, finish, journal, ledger_rows, record, spend
from tests.ledger.test_crash import ROOT, kill


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def number_of(attempt: Attempt, books: Journal) -> int | None:
    return books._open[attempt.id].slot


def left(directory: Path) -> list[str]:
    return sorted(path.name.rpartition(".")[2] for path in directory.iterdir() if path.name != "writer.lock")


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("gateway.ledger.journal.writer.os.write", refuse)
        yield


async def drain(directory: Path, database: Database) -> list[dict[str, object]]:
    writer = Writer(directory, database)
    await writer.drain_once()
    await writer.aclose()
    return await asyncio.to_thread(ledger_rows, database)


async def started(directory: Path) -> tuple[Journal, Attempt]:
    """A journal without marks, and an attempt that has received 7 chunks."""
    books, entry = journal(directory), record(stream=True)
    await books.start()
    attempt = begin(entry)
    books.open(attempt, entry)
    for chunks in range(1, 8):
        attempt.came(250, chunks)
    return books, attempt


def test_a_word_holds_chunks_and_bytes(tmp_path: Path) -> None:
    table = slots.Slots(tmp_path / "lane.slots")
    attempt = begin(record(stream=True))
    number = table.take()
    assert number is not None
    attempt.progress = table.words(number)
    attempt.came(300, 1)
    attempt.came(2**33, 2**27)
    words = slots.read(tmp_path / "lane.slots")
    assert words is not None
    came = slots.progress_of(words, number)
    assert came is not None
    assert came[:2] == (2**27, 300 + 2**33)
    assert came.spoke_at == pytest.approx(attempt.spoke_at, abs=0.002)
    assert slots.progress_of(words, number + 1) is None


async def test_an_orphan_has_what_came_since_the_last_mark(database: Database, directory: Path) -> None:
    books, _ = await started(directory)
    await books.aclose()
    (row,) = await drain(directory, database)
    assert (row["outcome"], row["output_tokens"], row["duration_ms"]) == ("interrupted", 7, None)
    assert left(directory) == []


async def test_an_orphan_is_billed_at_the_pace_that_was_marked(database: Database, directory: Path) -> None:
    books, entry = journal(directory), record()
    await books.start()
    attempt = begin(entry, at=1000.0)
    attempt.pace = Pace(plain=True)
    attempt.pace.learn(100, 1.0)
    books.open(attempt, entry)
    books._mark()
    await books.aclose()
    (row,) = await drain(directory, database)
    assert row["outcome"] == "interrupted"
    assert row["output_tokens"] > 100


async def test_paces_of_streams_and_of_plain_answers_are_told_apart_where_no_slot_is_left(directory: Path) -> None:
    books, plain, stream = journal(directory), record(), record(stream=True)
    await books.start()
    assert books._slots is not None
    while books._slots.take() is not None:
        pass
    for entry, pace, tokens in ((plain, Pace(plain=True), 100), (stream, Pace(hides=True), 300)):
        attempt = begin(entry)
        attempt.pace = pace
        pace.learn(tokens, 1.0)
        books.open(attempt, entry)
    (known,) = books._paces().values()
    assert (known.plain, known.hidden) == (200.0, 600.0)
    await books.aclose()


async def test_a_table_of_another_boot_is_not_believed(database: Database, directory: Path) -> None:
    books, attempt = await started(directory)
    books._mark()
    attempt.came(250, 8)
    await books.aclose()
    (path,) = directory.glob("*.slots")
    data = await asyncio.to_thread(path.read_bytes)
    await asyncio.to_thread(path.write_bytes, b"another boot  id" + data[16:])
    (row,) = await drain(directory, database)
    assert row["output_tokens"] == 7
    assert left(directory) == []


@pytest.mark.parametrize("damage", [b"", b"short"])
async def test_without_a_whole_table_the_marks_count(database: Database, directory: Path, damage: bytes) -> None:
    books, attempt = await started(directory)
    books._mark()
    attempt.came(250, 8)
    await books.aclose()
    (path,) = directory.glob("*.slots")
    await asyncio.to_thread(path.write_bytes, damage)
    (row,) = await drain(directory, database)
    assert row["output_tokens"] == 7


async def test_a_slot_is_used_again_from_nothing(database: Database, directory: Path) -> None:
    books, attempt = await started(directory)
    number, entry = number_of(attempt, books), record(stream=True)
    books.close(finish(attempt), entry)
    following = begin(entry)
    books.open(following, entry)
    assert number_of(following, books) == number
    attempt.came(250, 50)  # what still comes for the one that has ended is not its successor's
    await books.aclose()
    rows = {row["id"]: row for row in await drain(directory, database)}
    assert rows[following.id]["output_tokens"] == 0
    assert rows[attempt.id]["output_tokens"] == 20


async def test_a_slot_is_kept_until_its_attempts_end_is_written(
    database: Database, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    books, attempt = await started(directory)
    entry = record(stream=True)
    with full_disk(monkeypatch):
        books.close(finish(attempt), entry)
        with pytest.raises(LedgerUnavailable):
            books.open(begin(entry), entry)
    (path,) = directory.glob("*.slots")
    words = await asyncio.to_thread(slots.read, path)
    assert words is not None
    came = slots.progress_of(words, 0)
    assert came is not None
    assert came[:2] == (7, 7 * 250)
    spend(books)
    spend(books)
    assert books._slots is not None
    assert {books._slots.take() for _ in range(slots.SLOTS)} == set(range(slots.SLOTS))
    assert books._slots.take() is None
    await books.aclose()


@pytest.mark.parametrize(
    ("dialect", "stream", "taken"),
    [("openai_chat", False, False), ("openai_chat", True, True), ("openai_other", False, True)],
)
async def test_only_an_answer_that_may_come_in_pieces_takes_a_slot(
    directory: Path, dialect: DialectName, stream: bool, taken: bool
) -> None:
    books, entry = journal(directory), record(dialect=dialect, stream=stream)
    await books.start()
    attempt = begin(entry)
    books.open(attempt, entry)
    assert (number_of(attempt, books) is not None, attempt.progress is not None) == (taken, taken)
    await books.aclose()


async def test_attempts_beyond_the_table_are_known_by_their_marks(
    database: Database, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    books, _ = await started(directory)
    assert books._slots is not None
    while books._slots.take() is not None:
        pass
    entry = record(stream=True)
    attempt = begin(entry)
    books.open(attempt, entry)
    attempt.came(250, 3)
    books._mark()
    attempt.came(250, 4)
    await books.aclose()
    assert {row["output_tokens"] for row in await drain(directory, database)} == {3, 7}


async def test_kill_9_loses_no_chunk_that_was_passed_on(database: Database, directory: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.ledger.victims", "stream", str(directory), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(50):
        await process.stdout.readline()
    said = await kill(process)
    (row,) = await drain(directory, database)
    passed_on = int(said[-1]) if said else 50
    tokens = row["output_tokens"]
    assert isinstance(tokens, int)
    assert passed_on <= tokens <= passed_on + 1
