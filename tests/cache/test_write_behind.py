"""What is stored waits for nobody, goes together, and never comes back after it was forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.cache.cache import Cache
from gateway.cache.entry import Batch, Entry, decode, encode
from gateway.cache.result import Hit, Miss
from gateway.cache.store.bodies import Bodies, Stored
from gateway.cache.store.exact import Quota
from gateway.cache.store.write_behind import Bounds, WriteBehind
from gateway.domain.money.usage import Usage
from gateway.domain.request import Controls
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from gateway.state.redis.log import IndexLog
from tests.cache.conftest import Given, Worker, completion, record, request, tenant
from tests.support.waiting import until


class Box:
    """An outbox, and what it lost."""

    def __init__(self, state: State, **options: Any) -> None:
        self.state, self.lost = state, list[Entry]()
        self.bodies = Bodies(state)
        self.write_behind = WriteBehind(state, IndexLog(state, "cache"), self.bodies, self._lose, **options)

    def _lose(self, entries: Iterable[Entry]) -> None:
        self.lost += entries

    def add(self, name: str, ttl_s: float = 60.0, size: int = 2) -> Entry | None:
        place = self.write_behind.place(ttl_s)
        if place is None:
            return None
        entry = Entry(name.encode(), "search", (), 0.0, time.time() + ttl_s, size, place=place)
        self.write_behind.add(entry, Stored(b"x" * size, Usage(1), 5, "small", "tiny"))
        return entry

    async def logged(self) -> list[Batch]:
        """The batches on the log, in its order."""
        entries = await self.state.call("XRANGE", self.state.key("log", "cache"), "-", "+")
        decoded = [decode(dict(zip(words[::2], words[1::2], strict=True))) for _, words in entries]
        return [batch for batch in decoded if isinstance(batch, Batch)]

    async def there(self, entry: Entry | None) -> bool:
        assert entry is not None
        return await self.bodies.get(entry, recall=False) is not None


async def test_answers_go_together_in_their_order_and_their_bodies_are_there(state: State) -> None:
    box = Box(state)
    entries = [box.add(name) for name in "abc"]
    assert await box.logged() == []
    await box.write_behind.flush()
    (batch,) = await box.logged()
    assert [entry.digest for entry in batch.entries] == [b"a", b"b", b"c"]
    assert batch.epoch == state.epoch
    assert all([await box.there(entry) for entry in entries])
    assert (box.write_behind.stats()["waiting"], box.write_behind.stats()["sent"], box.lost) == (0, 3, [])


async def test_large_batches_are_divided_and_times_to_live_kept_apart(state: State) -> None:
    box = Box(state, bounds=Bounds(batch_answers=2, batch_bytes=100))
    names = [box.add(name, ttl_s, size) for name, ttl_s, size in [("a", 60, 2), ("b", 60, 2), ("c", 60, 200)]]
    names += [box.add("d", 60), box.add("e", 5)]
    await box.write_behind.flush()
    assert [[entry.digest for entry in batch.entries] for batch in await box.logged()] == [
        [b"a", b"b"],
        [b"c"],
        [b"d"],
        [b"e"],
    ]
    places = [entry.place for entry in names if entry]
    assert 4000 < await state.call("PTTL", state.key("cache", places[-1])) <= 5000
    assert 59_000 < await state.call("PTTL", state.key("cache", places[0])) <= 60_000


@pytest.mark.parametrize("bounds", [Bounds(answers=3), Bounds(bytes=6)])
async def test_what_does_not_fit_is_dropped_and_counted(state: State, bounds: Bounds) -> None:
    box = Box(state, bounds=bounds)
    assert [box.add(name) is not None for name in "abcde"] == [True, True, True, False, False]
    await box.write_behind.flush()
    assert box.write_behind.stats()["dropped"] == 2
    assert box.add("f") is not None


async def test_a_full_outbox_costs_the_answer_nothing(state: State) -> None:
    cache = Cache(state, IndexLog(state, "cache"), None, unsent=Bounds(answers=1))
    for text, kept in (("one", "exact"), ("two", "miss")):
        miss = await cache.lookup(request(text), tenant(), record(tenant()))
        assert isinstance(miss, Miss)
        cache.store(miss, Given(), record(tenant()))
        seen = record(tenant())
        await cache.lookup(request(text), tenant(), seen)
        assert seen.cache == kept


async def test_it_goes_by_itself_a_moment_later_and_sleeps_while_there_is_nothing(state: State) -> None:
    box = Box(state, period_s=0.01)
    await box.write_behind.open()
    for name in "ab":
        entry, before = box.add(name), int(box.write_behind.stats()["batches"])
        await until(lambda before=before: box.write_behind.stats()["batches"] == before + 1)  # type: ignore[misc]
        assert await box.there(entry)
    await box.write_behind.aclose()


async def test_closing_the_cache_sends_what_waits(state: State, make_worker: Callable[..., Any]) -> None:
    cache = Cache(state, IndexLog(state, "cache"), None)
    await cache.open()
    miss = await cache.lookup(request(), tenant(), record(tenant()))
    assert isinstance(miss, Miss)
    cache.store(miss, Given(), record(tenant()))
    await cache.aclose()
    other = await make_worker()
    await until(lambda: other.cache.stats()["entries"] == 1)
    assert await other.text(request(), tenant()) == "Lima."


async def test_what_is_withdrawn_never_goes_and_what_is_on_its_way_is_deleted_again(state: State) -> None:
    box = Box(state)
    waiting, going = box.add("a"), box.add("b")
    assert waiting
    assert going
    box.write_behind.withdraw(waiting)
    assert box.write_behind.find(waiting) is None
    sending = asyncio.get_running_loop().create_task(box.write_behind.flush())
    await asyncio.sleep(0)
    box.write_behind.withdraw(going)
    await sending
    assert await box.there(going)
    await box.write_behind.flush()
    assert not await box.there(going)
    (batch,) = await box.logged()
    assert [entry.digest for entry in batch.entries] == [b"b"]


async def test_an_answer_refreshed_while_it_waits_is_the_new_one(state: State, make_worker: Callable[..., Any]) -> None:
    one, two = await make_worker(), await make_worker()
    for text in ("Lima.", "Lima, still."):
        miss = await one.cache.lookup(request(), tenant("fresh"), record(tenant("fresh")))
        if isinstance(miss, Hit):
            miss = await one.cache.lookup(
                request(controls=Controls(cache="refresh")), tenant("fresh"), record(tenant("fresh"))
            )
        one.cache.store(miss, Given(completion(text)), record(tenant("fresh")))
    await one.catch_up()
    await until(lambda: two.cache.stats()["entries"] == 1)
    for worker in (one, two):
        assert await worker.text(request(), tenant("fresh")) == "Lima, still."
    await one.cache.deliver()
    assert await two.text(request(), tenant("fresh")) == "Lima, still."


async def test_the_author_does_not_read_its_own_batches_again(make_worker: Callable[..., Any]) -> None:
    one, two = await make_worker(), await make_worker()
    await one.serve(request(), tenant())
    await until(lambda: two.cache.stats()["entries"] == 1)
    assert one.cache._write_behind._own_names == {}
    assert one.cache._log.stats()["handled"] == two.cache._log.stats()["handled"] == 1
    assert one.cache.stats()["entries"] == 1


async def test_no_team_sees_anothers_answer_that_went_with_its_own(make_worker: Callable[..., Any]) -> None:
    one, two = await make_worker(), await make_worker()
    teams = [
        tenant("a"),
        tenant("b"),
        tenant("c", cache={"scope": "key"}),
        tenant("c", key="k2", cache={"scope": "key"}),
    ]
    for number, who in enumerate(teams[:3]):
        miss = await one.cache.lookup(request(), who, record(who))
        one.cache.store(miss, Given(completion(f"for {number}")), record(who))
    await one.catch_up()
    await until(lambda: two.cache.stats()["entries"] == 3)
    for worker in (one, two):
        assert [await worker.text(request(), who) for who in teams] == ["for 0", "for 1", "for 2", None]


# -- the server away, back, and another ----------------------------------------------------------------------------


@asynccontextmanager
async def server_of_its_own(directory: Path) -> AsyncIterator[tuple[EmbeddedServer, State]]:
    server = EmbeddedServer(directory)
    await asyncio.to_thread(server.start)
    state = State(server.url, timeout_s=0.3)
    await state.open()
    try:
        yield server, state
    finally:
        await state.aclose()
        await asyncio.to_thread(server.stop)


async def test_with_the_server_away_answers_are_lost_and_later_ones_are_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with server_of_its_own(tmp_path_factory.mktemp("v")) as (server, state):
        box = Box(state)
        before = box.add("before")
        await asyncio.to_thread(server.kill)
        await box.write_behind.flush()
        assert box.lost == [before]
        await asyncio.to_thread(server.start)
        await until(lambda: state.healthy)
        after = box.add("after")
        await box.write_behind.flush()
        assert await box.there(after)
        assert not await box.there(before)
        assert box.write_behind.stats()["waiting"] == 0


async def test_an_answer_that_was_lost_is_not_known_any_more(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with server_of_its_own(tmp_path_factory.mktemp("v")) as (server, state):
        log = IndexLog(state, "cache")
        cache = Cache(state, log, None)
        await cache.open()
        worker = Worker(cache, state, log)
        miss = await cache.lookup(request(), tenant(), record(tenant()))
        assert isinstance(miss, Miss)
        cache.store(miss, Given(), record(tenant()))
        assert (await worker.ask(request(), tenant())).cache == "exact"
        await asyncio.to_thread(server.kill)
        await cache.deliver()
        assert cache.stats()["entries"] == 0
        await cache.aclose()


async def test_what_waited_while_the_server_lost_its_data_goes_nowhere(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A flush that covered it may have been lost with the rest."""
    async with server_of_its_own(tmp_path_factory.mktemp("v")) as (_, state):
        box = Box(state)
        stale, epoch = box.add("stale"), state.epoch
        await state.call("FLUSHALL")
        await until(lambda: state.epoch != epoch)
        fresh = box.add("fresh")
        await box.write_behind.flush()
        assert box.lost == [stale]
        assert not await box.there(stale)
        (batch,) = await box.logged()
        assert [entry.digest for entry in batch.entries] == [b"fresh"]
        assert await box.there(fresh)


async def test_nobody_believes_a_batch_of_another_epoch(state: State, make_worker: Callable[..., Any]) -> None:
    """Its author had not heard yet that the server lost its data."""
    worker = await make_worker()
    box = Box(state)
    entry = box.add("old")
    assert entry
    await box.write_behind._log.append(encode(Batch("them-1", entry.place, "another epoch", [entry])))
    await worker.serve(request(), tenant())
    assert worker.cache.stats()["entries"] == 1


async def test_after_a_reset_a_worker_knows_its_own_answers_from_the_log(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with server_of_its_own(tmp_path_factory.mktemp("v")) as (_, state):
        log = IndexLog(state, "cache")
        cache = Cache(state, log, None)
        await cache.open()
        worker = Worker(cache, state, log)
        await worker.serve(request("one"), tenant())
        dump = await state.call("DUMP", state.key("log", "cache"))
        await worker.serve(request("two"), tenant())
        await state.call("RESTORE", state.key("log", "cache"), 0, dump, "REPLACE")
        await state.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(lambda: log.stats()["resets"] == 1 and cache.stats()["entries"] == 1)
        await until(lambda: state.healthy)
        assert (await worker.ask(request("one"), tenant())).cache == "exact"
        assert (await worker.ask(request("two"), tenant())).cache == "miss"
        await cache.aclose()


# -- what it is for --------------------------------------------------------------------------------------------------


async def test_no_request_of_many_misses_waits_for_the_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Look-ups that miss and answers that are stored send nothing themselves; 300 of them go in a few commands."""
    async with server_of_its_own(tmp_path_factory.mktemp("v")) as (_, state):
        cache = Cache(state, IndexLog(state, "cache"), None)
        await cache.open()
        sent = state.stats()["calls"]
        for number in range(300):
            found = cache.lookup(request(f"What is {number} + 1?"), tenant(), record(tenant()))
            with pytest.raises(StopIteration) as ended:
                found.send(None)  # it never gives the loop its turn
            cache.store(ended.value.value, Given(), record(tenant()))
        assert state.stats()["calls"] == sent
        await cache.deliver()
        assert int(state.stats()["calls"]) <= int(sent) + 3 * (2 + 1) + 3  # a body and a line of the log for each 128
        await cache.aclose()


async def test_evicted_answers_are_deleted_together(state: State, make_worker: Callable[..., Any]) -> None:
    worker = await make_worker(quota=Quota(entries=10))
    for number in range(30):
        miss = await worker.cache.lookup(request(f"{number}"), tenant(), record(tenant()))
        worker.cache.store(miss, Given(), record(tenant()))
        if number % 10 == 9:
            await worker.catch_up()
    await worker.catch_up()
    places = await state.call("KEYS", state.key("cache", "*"))
    assert sum([await state.call("HLEN", place) for place in places]) == 10
