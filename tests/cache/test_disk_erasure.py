from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gateway.cache.entry import Batch, Entry, Flush, encode
from gateway.cache.store.disk_erasure import DiskErasure
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from gateway.state.redis.log import IndexLog
from tests.support.waiting import until

FAR = 4e9


def entry(name: str, team: str, asked_at: float = 1.0) -> Entry:
    return Entry(name.encode().ljust(16), team, (), asked_at, FAR, 7, None, None, "p", 9)


async def held(state: State) -> bytes:
    entries: list[Any] = await state.call("XRANGE", state.key("log", "cache"), "-", "+")
    return b" ".join(word for _, words in entries for word in words)


async def test_only_what_a_flush_covers_leaves_the_log(state: State) -> None:
    log = IndexLog(state, "cache")
    await log.append(encode(Batch("one", "p", "e", [entry("mine", "search"), entry("theirs", "other")])), weight=2)
    await log.append(encode(Batch("two", "p", "e", [entry("mine2", "search")])))
    await log.append(encode(Batch("three", "p", "e", [entry("later", "search", asked_at=9.0)])))
    scrub = DiskErasure(state, log)
    assert not await scrub.tidy()
    scrub.note(Flush("search", 5.0))
    assert await scrub.tidy()
    log_now = await held(state)
    shown = {name: name.encode().ljust(16).hex().encode() in log_now for name in ("mine", "mine2", "theirs", "later")}
    assert shown == {"mine": False, "mine2": False, "theirs": True, "later": True}
    assert scrub.stats() == {"scrubbed": 2}
    assert not await scrub.tidy()


async def test_the_gateways_own_server_writes_its_file_anew(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    await asyncio.to_thread(server.start)
    state = State(server.own_url, timeout_s=5)
    await state.open()
    try:
        log = IndexLog(state, "cache")
        name = entry("mine", "search").digest.hex().encode()
        await log.append(encode(Batch("one", "p", "e", [entry("mine", "search"), entry("theirs", "other")])))
        files = tmp_path / "appendonlydir"

        def on_disk() -> bool:
            return name in b"".join(path.read_bytes() for path in list(files.iterdir()) if path.exists())

        assert await asyncio.to_thread(on_disk)
        scrub = DiskErasure(state, log)
        scrub.note(Flush("search", 5.0))
        assert await scrub.tidy()
        await until(lambda: asyncio.to_thread(lambda: not on_disk()))
    finally:
        await state.aclose()
        await asyncio.to_thread(server.stop)


async def test_what_cannot_be_done_stays_due() -> None:
    state = State("unix:///nowhere/there.sock", timeout_s=0.1)
    scrub = DiskErasure(state, IndexLog(state, "cache"))
    for number in range(1500):
        scrub.note(Flush("search", float(number)))
    assert not await scrub.tidy()
    assert scrub.stats() == {"scrubbed": 0}
