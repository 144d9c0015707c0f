"""Nothing is called that was not written down, and nothing written down is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from gateway.dialects.answers.usage import openai_usage
from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.usage import Usage
from gateway.errors import LedgerUnavailable
from gateway.ledger.journal import segments
from gateway.ledger.journal.reader import JournalReader
from gateway.ledger.journal.writer import Journal
from gateway.ledger.rows import Row
from gateway.runtime.write_batcher import WriteBatcher
from tests.ledger.samples import COST, LARGE, PRICE, SIMULATED, UNPRICED, USAGE, begin, finish, journal, record, spend
from tests.support.waiting import until


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest_asyncio.fixture
async def books(directory: Path) -> AsyncIterator[Journal]:
    books = journal(directory)
    await books.start()
    yield books
    await books.aclose()


def read(directory: Path) -> tuple[list[Row], list[Row]]:
    """Closed rows, and what orphans would become."""
    closed, open_ = list[Row](), list[Row]()
    for name, files in segments.lanes(directory).items():
        lane = JournalReader(name)
        before = None
        while lane.place != before:
            before = lane.place
            closed += map(Row.of, lane.read(files))
        open_ += lane.orphans()
    return closed, open_


def lines(directory: Path) -> list[Any]:
    found = []
    for files in segments.lanes(directory).values():
        for segment in files:
            for line in segment.path.read_bytes().splitlines():
                payload = segments.checked(line)
                found.append(None if payload is None else orjson.loads(payload))
    return found


@contextmanager
def full_disk(room: int, directory: Path) -> Iterator[None]:
    """No file may grow by more than `room` bytes beyond the journal's size, as on a disk that is full."""
    size = max(path.stat().st_size for path in directory.glob("*.journal"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


async def test_an_attempt_is_on_disk_before_it_may_be_called(books: Journal, directory: Path) -> None:
    entry = record(tags={"app": "shop"}, session="s1")
    attempt = begin(entry, tokens=123)
    books.open(attempt, entry)
    closed, (orphan,) = read(directory)
    assert closed == []
    assert (orphan.id, orphan.team, orphan.tags, orphan.session) == (attempt.id, "search", '{"app":"shop"}', "s1")
    assert (orphan.input_tokens, orphan.outcome, orphan.estimated) == (123, "interrupted", True)
    assert orphan.cost_pico == 123 * 10**6


async def test_a_closed_attempt_is_priced_and_whole(books: Journal, directory: Path) -> None:
    entry = record()
    entry.cache = "miss"
    attempt = begin(entry)
    attempt.first_byte_at, attempt.ended_at = attempt.started_at + 0.25, attempt.started_at + 1.5
    books.open(attempt, entry)
    books.close(finish(attempt), entry)
    assert attempt.cost_pico == COST
    assert attempt.price_source == "test"
    (row,), orphans = read(directory)
    assert orphans == []
    assert row.cost_pico == COST
    assert (row.input_tokens, row.cached_tokens, row.output_tokens, row.estimated) == (10, 5, 20, False)
    assert (row.backend, row.model, row.tier, row.key_id, row.organisation) == (
        "large",
        "big",
        "hosted",
        "key-search",
        "acme",
    )
    assert (row.cache, row.outcome, row.status, row.stream, row.attempt) == ("miss", "ok", 200, False, 1)
    assert (row.first_byte_ms, row.duration_ms) == (250.0, 1500.0)


@pytest.mark.parametrize("facts", [{}, {"agent": "codex"}])
async def test_the_traffic_class_is_in_the_row_of_every_attempt(
    books: Journal, directory: Path, facts: dict[str, Any]
) -> None:
    entry = record(traffic_class="es/text/opening", **facts)
    dead, ended = begin(entry), begin(entry)
    ended.id += "-ended"
    for attempt in (dead, ended):
        books.open(attempt, entry)
    books.close(finish(ended), entry)
    books.cached(entry, USAGE, 5)
    closed, orphans = read(directory)
    assert {(row.traffic_class, row.agent) for row in (*closed, *orphans)} == {
        ("es/text/opening", facts.get("agent", ""))
    }
    assert (len(closed), len(orphans)) == (2, 1)


async def test_an_attempt_is_closed_once(books: Journal, directory: Path) -> None:
    entry = record()
    attempt = begin(entry)
    books.open(attempt, entry)
    books.close(finish(attempt), entry)
    books.close(finish(attempt, Usage(9999)), entry)
    assert len(read(directory)[0]) == 1
    assert attempt.cost_pico == COST


@pytest.mark.parametrize("backend", [UNPRICED, SIMULATED])
async def test_what_has_no_price_costs_none_and_not_zero(books: Journal, directory: Path, backend: Any) -> None:
    attempt = spend(books, backend=backend)
    assert attempt.cost_pico is None
    (row,), _ = read(directory)
    assert row.cost_pico is None
    assert row.simulated is (backend is SIMULATED)


async def test_a_failed_attempt_without_usage_costs_nothing(books: Journal) -> None:
    entry = record()
    attempt = begin(entry)
    books.open(attempt, entry)
    books.close(finish(attempt, None, "failed"), entry)
    assert attempt.cost_pico == 0
    assert attempt.usage == Usage()


async def test_an_answer_without_usage_is_counted_by_the_gateway(books: Journal) -> None:
    entry = record()
    attempt = begin(entry, tokens=7)
    books.open(attempt, entry)
    attempt.chunks, attempt.output_bytes = 3, 600
    books.close(finish(attempt, None), entry)
    assert attempt.usage == Usage(7, output_tokens=3, estimated=True)


@pytest.mark.parametrize("lie", [Usage(-1), Usage(0, output_tokens=2**40), Usage(10**30)])
async def test_a_backend_that_lies_beyond_measure_is_not_believed(books: Journal, lie: Usage) -> None:
    entry = record()
    attempt = begin(entry, tokens=7)
    books.open(attempt, entry)
    books.close(finish(attempt, lie), entry)
    assert attempt.usage == Usage(7, estimated=True)
    assert attempt.cost_pico == 7 * 10**6


async def test_an_attempt_closed_without_a_verdict_was_interrupted(books: Journal, directory: Path) -> None:
    entry = record()
    attempt = begin(entry)
    books.open(attempt, entry)
    books.close(attempt, entry)
    assert read(directory)[0][0].outcome == "interrupted"


async def test_text_that_is_no_utf8_does_not_cost_the_entry(books: Journal, directory: Path) -> None:
    entry = record(session="\ud800")
    attempt = begin(entry)
    attempt.error = "\udcff broke"
    books.open(attempt, entry)
    books.close(finish(attempt), entry)
    (row,), _ = read(directory)
    assert (row.session, row.error, row.cost_pico) == ("?", "? broke", COST)


async def test_a_cache_hit_is_a_row_of_its_own(books: Journal, directory: Path) -> None:
    entry = record()
    entry.cache = "semantic"
    books.cached(entry, USAGE, 12345)
    (row,), _ = read(directory)
    assert (row.id, row.attempt, row.cost_pico, row.saved_pico) == (f"{entry.request_id}-0", 0, 0, 12345)
    assert (row.cache, row.output_tokens, row.backend) == ("semantic", 20, "")


class Reports:
    """Of a stream under way."""

    def __init__(self, *reports: Usage | None) -> None:
        self._reports = list(reports)

    @property
    def reported(self) -> Usage | None:
        if not self._reports:
            raise ValueError("asked too often")
        return self._reports.pop()


async def test_what_a_stream_reported_is_marked_once_and_billed_when_its_worker_dies(directory: Path) -> None:
    books = journal(directory, mark_s=0.02)
    await books.start()
    entry = record()
    attempts = [begin(entry) for _ in range(3)]
    for attempt, reports in zip(attempts, (Reports(Usage(20, 900)), Reports(None), Reports()), strict=True):
        attempt.reporter = reports
        books.open(attempt, entry)
    for count in (1, 2):
        for attempt in attempts:
            attempt.chunks, attempt.output_bytes = 4 * count, 900 * count
        await until(lambda: sum("mark" in line for line in lines(directory)) == count)  # noqa: B023 - awaited at once
    first, second = [line for line in lines(directory) if "mark" in line]
    assert first["reported"] == {attempts[0].id: {"input_tokens": 20, "cached_tokens": 900}}
    assert "reported" not in second
    _, orphans = read(directory)
    assert (orphans[0].input_tokens, orphans[0].cached_tokens) == (20, 900)
    assert [orphan.cached_tokens for orphan in orphans][1:] == [0, 0]
    await books.aclose()


async def test_growing_streams_are_marked_in_one_line_and_resting_ones_are_not(directory: Path) -> None:
    books = journal(directory, mark_s=0.02)
    await books.start()
    entry = record()
    attempts = [begin(entry) for _ in range(3)]
    for attempt in attempts:
        books.open(attempt, entry)
    attempts[0].chunks, attempts[0].output_bytes = 4, 900
    attempts[1].chunks, attempts[1].output_bytes = 7, 2660
    await until(lambda: any("mark" in line for line in lines(directory)))
    (mark,) = [line for line in lines(directory) if "mark" in line]
    assert mark["grown"] == [[attempts[0].id, 4, 900], [attempts[1].id, 7, 2660]]
    attempts[0].chunks, attempts[0].output_bytes = 50, 17320
    await until(lambda: sum("mark" in line for line in lines(directory)) == 2)
    _, orphans = read(directory)
    assert [orphan.output_tokens for orphan in orphans] == [240, 15, 0]
    assert [orphan.duration_ms is None for orphan in orphans] == [False, False, True]
    await books.aclose()


async def test_a_full_disk_refuses_before_a_call_is_made(books: Journal, directory: Path) -> None:
    entry = record()
    with full_disk(0, directory), pytest.raises(LedgerUnavailable) as refused:
        books.open(begin(entry), entry)
    assert refused.value.status == 503
    assert "free disk space" in refused.value.message
    assert read(directory) == ([], [])
    spend(books)
    assert len(read(directory)[0]) == 1


@pytest.mark.parametrize("room", [1, 8, 9, 10, 40, 200])
async def test_a_line_that_the_disk_tore_is_passed_over(books: Journal, directory: Path, room: int) -> None:
    spend(books)
    entry = record()
    with full_disk(room, directory), pytest.raises(LedgerUnavailable):
        books.open(begin(entry), entry)
    later = spend(books)
    closed, orphans = read(directory)
    assert [row.id for row in closed][1:] == [later.id]
    assert orphans == []


async def test_a_call_refused_but_for_its_last_byte_never_becomes_an_entry(books: Journal, directory: Path) -> None:
    entry = record()
    attempt = begin(entry)
    size = books.stats()["segment_bytes"]
    books.open(attempt, entry)
    length = int(books.stats()["segment_bytes"]) - int(size)
    second = begin(entry)
    second.started_at = attempt.started_at  # so that both lines are equally long
    with full_disk(length - 1, directory), pytest.raises(LedgerUnavailable):
        books.open(second, entry)
    books.close(finish(attempt), entry)
    closed, orphans = read(directory)
    assert ([row.id for row in closed], orphans) == ([attempt.id], [])


async def test_an_end_that_the_disk_refuses_waits_in_memory(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    books = journal(directory, mark_s=0.02)
    await books.start()
    entry = record()
    attempts = [begin(entry) for _ in range(5)]
    for attempt in attempts:
        books.open(attempt, entry)
    with full_disk(100, directory):
        for attempt in attempts:
            books.close(finish(attempt), entry)
        await until(lambda: books.stats()["waiting"] == 5)
        assert len(read(directory)[0]) == 0
        with pytest.raises(LedgerUnavailable):
            books.open(begin(entry), entry)
    await until(lambda: books.stats()["waiting"] == 0)
    closed, orphans = read(directory)
    assert sorted(row.id for row in closed) == sorted(attempt.id for attempt in attempts)
    assert orphans == []
    assert sum("cannot be written" in entry.message for entry in caplog.records) <= 2
    await books.aclose()


async def test_money_that_the_disk_never_took_goes_to_the_log(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    books = journal(directory)
    await books.start()
    entry = record()
    attempt = begin(entry)
    books.open(attempt, entry)
    with full_disk(0, directory):
        books.close(finish(attempt), entry)
        await books.aclose()
    assert any(attempt.id in entry.getMessage() and entry.levelno == logging.ERROR for entry in caplog.records)


async def test_segments_roll_by_size_and_keep_their_order(directory: Path) -> None:
    books = journal(directory, mark_s=0.01, segment_bytes=2000)
    await books.start()
    ids = []
    for _ in range(30):
        ids.append(spend(books).id)
        await asyncio.sleep(0.005)
    await until(lambda: int(books.stats()["segment"]) > 2)
    assert [row.id for row in read(directory)[0]] == ids
    await books.aclose()


async def test_a_journal_deleted_under_the_gateway_begins_anew(directory: Path) -> None:
    books = journal(directory, mark_s=0.01)
    await books.start()
    for path in directory.glob("*.journal"):
        path.unlink()
    await until(lambda: books.stats()["segment"] == 2)
    spend(books)
    assert len(read(directory)[0]) == 1
    await books.aclose()


def same_file(fd: int, path: Path) -> bool:
    return os.path.samestat(os.fstat(fd), path.stat())


async def test_after_a_disk_that_is_gone_it_begins_anew_with_what_was_not_flushed(directory: Path) -> None:
    books = journal(directory, mark_s=0.05)
    await books.start()
    kept = spend(books)  # in the kernel's memory only
    (lost,) = directory.glob("*.journal")
    opened = [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
    fds = [fd for fd in opened if same_file(fd, lost)]
    assert fds
    lost.write_bytes(lost.read_bytes()[: lost.read_bytes().index(b"\n") + 1])  # as the disk has it, without its cache
    with open(os.devnull, "rb") as dead:
        for fd in fds:
            os.dup2(dead.fileno(), fd, inheritable=False)  # every write fails, and not for want of room
    entry = record()
    with pytest.raises(LedgerUnavailable):
        books.open(begin(entry), entry)
    await until(lambda: books.stats()["segment"] == 2)
    later = spend(books)
    assert [row.id for row in read(directory)[0]] == [kept.id, later.id]
    await books.aclose()


async def test_a_directory_that_cannot_be_written_refuses_to_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LedgerUnavailable):
        await journal(tmp_path / "file").start()


async def test_a_journal_that_is_not_open_refuses(directory: Path) -> None:
    books = journal(directory)
    entry = record()
    with pytest.raises(LedgerUnavailable):
        books.open(begin(entry), entry)
    await books.aclose()


async def test_nobody_else_may_read_the_journal(books: Journal, directory: Path) -> None:
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def held(directory: Path) -> bool:
    ((segment,),) = segments.lanes(directory).values()
    with segments.ended(directory, segment) as ended:
        pass
    assert segments.released(segment) is ended
    return not ended


async def test_a_living_worker_holds_its_last_segment(books: Journal, directory: Path) -> None:
    assert held(directory)
    await books.aclose()
    assert not held(directory)


def test_a_request_costs_two_writes(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> int:
        books = journal(directory)
        await books.start()
        writes = 0
        write = os.write

        def counted(fd: int, data: bytes) -> int:
            nonlocal writes
            writes += 1
            return write(fd, data)

        monkeypatch.setattr(os, "write", counted)
        spend(books, backend=LARGE)
        monkeypatch.undo()
        await books.aclose()
        return writes

    assert asyncio.run(scenario()) == 2


class Client(asyncio.WriteTransport):
    """Reads the journal whenever something is sent to it."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory, self.closed_rows = directory, list[int]()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.closed_rows.append(len(read(self.directory)[0]))

    def is_closing(self) -> bool:
        return False


async def test_the_answers_of_one_turn_are_journalled_together_before_any_of_them_is_sent(
    books: Journal, directory: Path
) -> None:
    outgoing, client, loop = WriteBatcher(), Client(directory), asyncio.get_running_loop()
    books.write_before(outgoing)
    outgoing.add(client, b"earlier in this turn", loop)
    for _ in range(3):
        spend(books)
        outgoing.add(client, b"answer", loop)
    assert len(read(directory)[0]) < 3  # no line is written by itself
    await asyncio.sleep(0)
    assert client.closed_rows == [3, 3, 3, 3]


async def test_what_is_sent_nowhere_is_journalled_at_the_end_of_the_turn(books: Journal, directory: Path) -> None:
    books.write_before(WriteBatcher())
    spend(books)
    await asyncio.sleep(0)
    assert len(read(directory)[0]) == 1
    assert read(directory)[1] == []


async def test_lines_of_a_turn_that_a_full_disk_refuses_are_written_later(books: Journal, directory: Path) -> None:
    outgoing = WriteBatcher()
    books.write_before(outgoing)
    entry = record()
    attempt = begin(entry)
    books.open(attempt, entry)
    with full_disk(0, directory):
        books.close(finish(attempt), entry)
        await asyncio.sleep(0)
        assert books.stats()["waiting"] == 1
    outgoing.add(Client(directory), b"next", asyncio.get_running_loop())
    await asyncio.sleep(0)
    assert len(read(directory)[0]) == 1


ROUTER = Backend(name="router", kind="openrouter", model="a/new-model")
FAR = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}


@pytest.mark.parametrize(
    ("usage", "billed"),
    [
        ({"cost": 0.00014}, 140_000_000),
        ({"cost": 1.5e-05, "is_byok": False, "cost_details": {"upstream_inference_cost": None}}, 15_000_000),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.002}}, 2_000_000_000),
        *[({"cost": cost}, None) for cost in (0, -1, None, "0.1", True, 1e9)],
        ({"cost": 0.1, "is_byok": True, "cost_details": {"upstream_inference_cost": -5}}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("price", [None, PRICE])
async def test_the_bill_in_an_answer_of_openrouter_replaces_an_own_price(
    books: Journal, directory: Path, usage: dict[str, Any], billed: int | None, price: PriceEntry | None
) -> None:
    reported = openai_usage({**FAR, **usage}, fees=(("web_search", 1),))
    for backend in (ROUTER, UNPRICED):
        entry = record()
        attempt = begin(entry, backend.model_copy(update={"price": price}))
        books.open(attempt, entry)
        books.close(finish(attempt, reported), entry)
    (of_router, of_other), _ = read(directory)
    own = None if price is None else 10 * 10**6 + 20 * 2 * 10**6
    assert of_other.cost_pico == own
    assert of_other.unpriced
    if billed is None:
        assert (of_router.cost_pico, of_router.unpriced) == (own, of_other.unpriced)
    else:
        assert (of_router.cost_pico, of_router.price_source, of_router.unpriced) == (billed, "provider's bill", "")
    assert (of_router.input_tokens, of_router.output_tokens) == (10, 20)
