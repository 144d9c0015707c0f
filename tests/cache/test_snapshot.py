from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.cache import cache
from gateway.cache.entry import Entry
from gateway.cache.keys import Question
from gateway.cache.packing import pack
from gateway.cache.store.snapshot import SnapshotWriter, read, write
from gateway.state.redis.connection import State
from gateway.state.redis.log import Position
from tests.cache.conftest import request, tenant
from tests.fakes.embedder import FakeEmbedder
from tests.support.waiting import until

POSITION = Position("e1", "5-0", [("4-0", 3), ("5-0", 1)])
FAR = 4e9


def kept(path: Path) -> int:
    found = read(path)
    return sum(len(batch.entries) for batch in found.batches) if found else 0


def entry(name: str, place: str, *, question: bool = True) -> Entry:
    vector = pack(np.full(384, 0.05, dtype=np.float32)) if question else None
    asked = Question(b"p" * 16, f"¿{name}?") if question else None
    return Entry(name.encode().ljust(16), "search", ("t",), 1.0, FAR, 7, asked, vector, place, 9)


def test_entries_come_back_as_they_went(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "index"
    entries = [entry("a", "one"), entry("b", "two", question=False), entry("c", "one")]
    write(path, POSITION, entries)
    back = read(path)
    assert back is not None
    assert back.position == POSITION
    assert sorted(each for batch in back.batches for each in batch.entries) == sorted(entries)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["index"], "nothing half-written stays"


def test_a_file_that_is_missing_cut_or_changed_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "index"
    assert read(path) is None
    assert not caplog.records
    write(path, POSITION, [entry("a", "one")])
    whole = path.read_bytes()
    for broken in (b"", whole[:-9], whole[:40] + b"x" + whole[41:]):
        path.write_bytes(broken)
        assert read(path) is None
    assert "cannot be used" in caplog.text


async def test_a_worker_that_starts_again_reads_only_what_came_since(
    make_worker: Callable[..., Any], state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "TIDY_S", 0.02)
    keep = SnapshotWriter(tmp_path / "index", writes=True, min_entries=1)
    who = tenant()
    first = await make_worker(FakeEmbedder(), keep=keep)
    for number in range(5):
        await first.serve(request(f"How do I cook {number} eggs?"), who)
    await until(lambda: first.cache.stats()["snapshots"] >= 1)
    await first.cache.deliver()
    await first.cache.caught_up(5)

    async def all_kept() -> bool:
        await first.cache.flush("search", prefix="nothing")  # news, so that it is written anew
        return await asyncio.to_thread(kept, keep.path) >= 5

    await until(all_kept)
    await first.cache.aclose()
    second = await make_worker(FakeEmbedder(), keep=SnapshotWriter(keep.path, writes=False))
    await second.cache.caught_up(5)
    assert second.cache.stats()["restored"] == 5
    without = await make_worker(FakeEmbedder(), keep=None)
    await without.cache.caught_up(5)
    assert second._log.stats()["handled"] < without._log.stats()["handled"]
    assert (await second.ask(request("How do I cook 3 eggs?"), who)).cache == "exact"
    assert (await second.ask(request("how do i cook 3 eggs"), who)).cache == "semantic"


async def test_a_snapshot_of_a_server_that_lost_its_data_is_forgotten(
    make_worker: Callable[..., Any], state: State, tmp_path: Path
) -> None:
    path = tmp_path / "index"
    await asyncio.to_thread(write, path, POSITION, [entry("a", "one")])
    worker = await make_worker(FakeEmbedder(), keep=SnapshotWriter(path, writes=True))
    await worker.cache.caught_up(5)
    assert worker.cache.stats()["restored"] == 1
    assert worker.cache.stats()["entries"] == 0


async def test_a_snapshot_that_the_log_has_left_behind_is_forgotten(
    make_worker: Callable[..., Any], state: State, tmp_path: Path
) -> None:
    path = tmp_path / "index"
    await asyncio.to_thread(write, path, POSITION._replace(epoch=state.epoch), [entry("a", "one")])
    worker = await make_worker(FakeEmbedder(), keep=SnapshotWriter(path, writes=True))
    await worker.cache.caught_up(5)  # what it stores before it has noticed goes with all that it believed to know
    await worker.serve(request(), tenant())
    await worker.cache.caught_up(5)
    assert worker.cache.stats()["entries"] == 1
    assert worker._log.stats()["resets"] == 1
