from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from gateway.cache.cache import Cache
from gateway.cache.result import Hit, Miss
from gateway.cache.store.exact import Quota
from gateway.domain.request import Controls
from gateway.errors import CacheOnlyMiss, EmbedderUnavailable, StateUnavailable
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from gateway.state.redis.log import IndexLog
from tests.cache.conftest import Given, Worker, completion, record, request, tenant
from tests.fakes.embedder import FakeEmbedder
from tests.support.pieces import pieces_of
from tests.support.waiting import until


async def test_the_same_request_is_answered_from_the_cache_with_what_it_saved(worker: Worker) -> None:
    who = tenant()
    assert (await worker.serve(request(), who)).cache == "miss"
    seen = record(who)
    hit = await worker.cache.lookup(request(), who, seen)
    assert isinstance(hit, Hit)
    assert (seen.cache, seen.saved_pico, hit.saved_pico, hit.usage.output_tokens) == ("exact", 700, 700, 2)
    assert hit.answer.ending == completion()


async def test_a_stored_answer_is_streamed_to_a_client_that_streams(worker: Worker) -> None:
    await worker.serve(request(), tenant())
    found = await worker.cache.lookup(request(stream=True), tenant(), record(tenant()))
    assert isinstance(found, Hit)
    chunks = b"".join([chunk async for chunk in pieces_of(found.answer)])
    assert b"Lima." in chunks
    assert found.answer.ending == b"data: [DONE]\n\n"


async def test_asked_again_at_once_the_worker_that_answered_has_it_already(worker: Worker, state: State) -> None:
    who, asked = tenant(), request()
    miss = await worker.cache.lookup(asked, who, record(who))
    assert isinstance(miss, Miss)
    worker.cache.store(miss, Given(), record(who))
    assert (await worker.ask(asked, who)).cache == "exact"
    assert (await worker.ask(asked, tenant("other"))).cache == "miss"
    assert await state.call("KEYS", state.key("cache", "*")) == []
    await worker.catch_up()
    assert (await worker.ask(asked, who)).cache == "exact"
    assert worker.cache.stats()["waiting"] == 0


async def test_a_flush_forgets_what_is_being_stored_too(worker: Worker, state: State) -> None:
    who, asked = tenant(), request()
    miss = await worker.cache.lookup(asked, who, record(who))
    assert isinstance(miss, Miss)
    worker.cache.store(miss, Given(), record(who))
    await worker.cache.flush("search")
    assert (await worker.ask(asked, who)).cache == "miss"
    await worker.catch_up()
    assert (await worker.ask(asked, who)).cache == "miss"
    assert await state.call("KEYS", state.key("cache", "*")) == []


async def test_harmless_edits_are_the_same_question(worker: Worker) -> None:
    await worker.serve(request("What is the capital of Peru?"), tenant())
    seen = await worker.ask(request("what's the capital of peru"), tenant())
    assert seen.cache == "semantic"
    assert seen.cache_score is not None
    assert (await worker.ask(request("What is the capital of Chile?"), tenant())).cache == "miss"


@pytest.mark.parametrize(
    "other",
    [
        {"model": "large"},
        {"temperature": 0.1},
        {"seed": 7},
        {"max_tokens": 5},
        {"response_format": {"type": "json_object"}},
        {"text": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "what is 1 + 1"}]},
        {
            "text": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello!"},
                {"role": "user", "content": "what is 1 + 1"},
            ]
        },
    ],
)
async def test_only_the_last_user_turn_may_differ(worker: Worker, other: dict[str, Any]) -> None:
    await worker.serve(request("What is 1 + 1?"), tenant())
    assert (await worker.ask(request("what is 1 + 1"), tenant())).cache == "semantic"
    assert (await worker.ask(request(**{"text": "what is 1 + 1", **other}), tenant())).cache == "miss"


async def test_sampled_answers_are_shared_by_meaning_only_where_the_policy_says_so(worker: Worker) -> None:
    for temperature in (None, 0.7):
        await worker.serve(request("What is 1 + 1?", temperature=temperature), tenant())
        assert (await worker.ask(request("what is 1 + 1", temperature=temperature), tenant())).cache == "miss"
    who = tenant(cache={"semantic": {"sampled": True}}, epoch="e2")
    await worker.serve(request("What is 1 + 1?", temperature=None), who)
    assert (await worker.ask(request("what is 1 + 1", temperature=None), who)).cache == "semantic"


async def test_what_depends_on_the_day_is_not_shared_by_meaning(worker: Worker) -> None:
    for asked, again in (("What is the weather today?", "what is the weather today"), ("Qué hay hoy?", "que hay hoy")):
        await worker.serve(request(asked), tenant())
        assert (await worker.ask(request(again), tenant())).cache == "miss"


async def test_tools_several_answers_and_overlong_questions_keep_out_of_the_semantic_level(worker: Worker) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for fields in ({"tools": [tool]}, {"text": "word " * 400}):
        asked = {"text": "What is 1 + 1?", **fields}
        await worker.serve(request(**asked), tenant())
        assert (await worker.ask(request(**asked), tenant())).cache == "exact"
        assert (await worker.ask(request(**{**asked, "text": asked["text"] + "?"}), tenant())).cache == "miss"
    await worker.serve(request(n=2), tenant())
    assert (await worker.ask(request(n=2), tenant())).cache == "off"


async def test_a_changed_policy_or_revision_begins_anew(worker: Worker, make_worker: Callable[..., Any]) -> None:
    await worker.serve(request(), tenant())
    assert (await worker.ask(request(), tenant(epoch="e2"))).cache == "miss"
    other = await make_worker(revision="other backends")
    assert (await other.ask(request(), tenant())).cache == "miss"


async def test_an_answer_lives_as_long_as_the_policy_says(worker: Worker) -> None:
    who = tenant(cache={"ttl": "200ms"})
    await worker.serve(request(), who)
    assert (await worker.ask(request(), who)).cache == "exact"
    await asyncio.sleep(0.22)
    assert (await worker.ask(request(), who)).cache == "miss"
    assert (await worker.ask(request("what's the capital of peru"), who)).cache == "miss"


async def test_a_cache_that_is_off_neither_answers_nor_stores(worker: Worker) -> None:
    who = tenant(cache={"enabled": False})
    assert (await worker.serve(request(), who)).cache == "off"
    assert worker.cache.stats()["entries"] == 0


async def test_request_controls_bypass_refresh_and_demand_the_cache(worker: Worker) -> None:
    who = tenant()
    with pytest.raises(CacheOnlyMiss):
        await worker.ask(request(controls=Controls(cache="only")), who)
    assert (await worker.serve(request(controls=Controls(cache="bypass")), who)).cache == "bypass"
    assert worker.cache.stats()["entries"] == 0
    await worker.serve(request(), who)
    refreshed = await worker.serve(request(controls=Controls(cache="refresh")), who, Given(completion("Lima, still.")))
    assert refreshed.cache == "miss"
    assert await worker.text(request(controls=Controls(cache="only")), who) == "Lima, still."
    assert await worker.text(request("what's the capital of peru"), who) == "Lima, still."


async def test_a_cut_answer_is_kept_for_the_very_same_request_alone(worker: Worker) -> None:
    await worker.serve(request(max_tokens=2), tenant(), Given(finish="length"))
    assert (await worker.ask(request(max_tokens=2), tenant())).cache == "exact"
    assert (await worker.ask(request("what's the capital of peru", max_tokens=2), tenant())).cache == "miss"


async def test_two_workers_soon_know_the_same(make_worker: Callable[..., Any]) -> None:
    one, two = await make_worker(FakeEmbedder()), await make_worker(FakeEmbedder())
    await one.serve(request(), tenant())
    await until(lambda: two.cache.stats()["entries"] == 1)
    assert (await two.ask(request(), tenant())).cache == "exact"
    assert (await two.ask(request("what's the capital of peru"), tenant())).cache == "semantic"
    assert await two.cache.flush("search") == 1
    await until(lambda: one.cache.stats()["entries"] == 0)
    assert (await one.ask(request(), tenant())).cache == "miss"
    assert (await one.ask(request("what's the capital of peru"), tenant())).cache == "miss"


async def test_a_worker_that_starts_later_learns_what_is_there(make_worker: Callable[..., Any]) -> None:
    one = await make_worker(FakeEmbedder())
    await one.serve(request(), tenant())
    await one.serve(request("Who wrote Don Quixote?"), tenant())
    await one.cache.flush("search", older_than_s=3600)
    late = await make_worker(FakeEmbedder())
    await until(lambda: late.cache.stats()["entries"] == 2)
    assert (await late.ask(request("who wrote don quixote"), tenant())).cache == "semantic"


async def test_flush_goes_by_team_tag_and_age_and_can_be_tried(worker: Worker) -> None:
    await worker.serve(request("one", Controls(cache_tags=("docs",))), tenant())
    await worker.serve(request("two"), tenant())
    await worker.serve(request("three"), tenant("other"))
    assert await worker.cache.flush("search", dry_run=True) == 2
    assert await worker.cache.flush("search", older_than_s=60) == 0
    assert await worker.cache.flush("search", tag="docs") == 1
    assert (await worker.ask(request("one"), tenant())).cache == "miss"
    assert (await worker.ask(request("two"), tenant())).cache == "exact"
    assert await worker.cache.flush("search") == 1
    assert (await worker.ask(request("three"), tenant("other"))).cache == "exact"


async def test_an_answer_asked_for_before_a_flush_does_not_come_back_after_it(worker: Worker) -> None:
    who, seen = tenant(), record(tenant())
    miss = await worker.cache.lookup(request(), who, seen)
    await worker.cache.flush("search")
    assert isinstance(miss, Miss)
    worker.cache.store(miss, Given(), seen)
    await worker.catch_up()
    assert (await worker.ask(request(), who)).cache == "miss"


async def test_beyond_its_quota_a_team_loses_its_oldest_answers(state: State, make_worker: Callable[..., Any]) -> None:
    worker = await make_worker(quota=Quota(entries=2))
    for text in ("one", "two", "three"):
        await worker.serve(request(text), tenant())
    await worker.serve(request("four"), tenant("other"))
    assert [(await worker.ask(request(text), tenant())).cache for text in ("one", "two", "three")] == [
        "miss",
        "exact",
        "exact",
    ]
    await worker.catch_up()
    assert await bodies(state) == 3


async def bodies(state: State) -> int:
    """Answers that the server has."""
    places = await state.call("KEYS", state.key("cache", "*"))
    return sum([await state.call("HLEN", place) for place in places])


async def test_an_answer_that_the_server_let_go_is_a_miss(
    state: State, worker: Worker, make_worker: Callable[..., Any]
) -> None:
    await worker.serve(request(), tenant())
    (body,) = await state.call("KEYS", state.key("cache", "*"))
    await state.call("DEL", body)
    assert (await worker.ask(request(), tenant())).cache == "exact"  # at hand
    other = await make_worker()
    await other.cache.caught_up(5.0)
    assert (await other.ask(request(), tenant())).cache == "miss"
    assert other.cache.stats()["entries"] == 0


async def test_without_an_embedder_the_exact_level_serves(make_worker: Callable[..., Any]) -> None:
    for embedder, degraded in ((None, set()), (FakeEmbedder(ready=False), set())):
        worker = await make_worker(embedder)
        who = tenant(uuid.uuid4().hex)
        await worker.serve(request(), who)
        assert (await worker.ask(request(), who)).cache == "exact"
        assert (await worker.ask(request("what's the capital of peru"), who)).degraded == degraded


async def test_who_shares_answers_shares_vectors_whatever_they_are_needed_for(make_worker: Callable[..., Any]) -> None:
    embedder = FakeEmbedder()
    worker = await make_worker(embedder)
    await worker.ask(request(), tenant())
    await worker.serve(request("Who wrote Emma?", Controls(cache="refresh")), tenant())  # its vector is made afterwards
    await until(lambda: len(embedder.texts) == 2)
    assert len(embedder.owners) == 1
    await worker.ask(request(), tenant("other"))
    assert len(embedder.owners) == 2


async def test_what_was_answered_before_the_embedder_had_loaded_is_found_by_meaning_afterwards(
    make_worker: Callable[..., Any],
) -> None:
    embedder = FakeEmbedder(ready=False)
    worker = await make_worker(embedder)
    who = tenant()
    await worker.serve(request("What is the capital of Peru?"), who)
    assert (await worker.ask(request("what is the capital of peru"), who)).cache == "miss"
    embedder.ready = True
    await until(lambda: worker.cache.stats()["semantic_ready"] and len(embedder.texts) == 1)
    await worker.cache.deliver()
    assert (await worker.ask(request("what is the capital of peru"), who)).cache == "semantic"


class BusyEmbedder(FakeEmbedder):
    """Refuses the first two texts: the look-up's, and the first attempt of the stored answer's question."""

    refusals = 2

    async def embed(self, text: str, owner: str = "") -> Any:
        if self.refusals:
            self.refusals -= 1
            raise EmbedderUnavailable("too many texts are waiting for the embedder")
        return await super().embed(text, owner)


async def test_what_was_answered_while_the_embedder_was_busy_is_found_by_meaning_afterwards(
    make_worker: Callable[..., Any],
) -> None:
    worker = await make_worker(BusyEmbedder())
    who = tenant()
    await until(lambda: worker.cache.stats()["semantic_ready"])
    await worker.serve(request("What is the capital of Peru?"), who)
    await until(lambda: worker.cache.stats()["semantic_questions"])
    assert (await worker.ask(request("what is the capital of peru"), who)).cache == "semantic"


async def test_a_failed_embedder_shows_as_degraded(make_worker: Callable[..., Any]) -> None:
    worker = await make_worker(FakeEmbedder(ready=False, failed=True))
    assert (await worker.ask(request(), tenant())).degraded == {"embedder"}


async def test_with_the_state_server_away_look_ups_are_misses_and_nothing_hangs() -> None:
    state = State("unix:///nowhere/there.sock", timeout_s=0.1)
    await state.open()
    cache = Cache(state, IndexLog(state, "cache"), FakeEmbedder())
    await cache.open()
    async with asyncio.timeout(30):
        seen = record(tenant())
        miss = await cache.lookup(request(), tenant(), seen)
        assert (seen.cache, seen.degraded) == ("miss", {"state"})
        assert isinstance(miss, Miss)
        cache.store(miss, Given(), seen)
        with pytest.raises(StateUnavailable):
            await cache.flush("search")
    await cache.aclose()
    await state.aclose()


async def test_a_server_that_lost_its_data_leaves_no_answers_behind(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("v")
    server = EmbeddedServer(directory)
    await asyncio.to_thread(server.start)
    state = State(server.url, timeout_s=2.0)
    await state.open()
    log = IndexLog(state, "cache")
    cache = Cache(state, log, FakeEmbedder())
    await cache.open()
    try:
        worker = Worker(cache, state, log)
        await worker.serve(request(), tenant())
        assert (await worker.ask(request(), tenant())).cache == "exact"
        await state.call("FLUSHALL")
        await until(lambda: cache.stats()["entries"] == 0)
        assert (await worker.ask(request(), tenant())).cache == "miss"
    finally:
        await cache.aclose()
        await state.aclose()
        await asyncio.to_thread(server.stop)


async def test_a_frozen_state_server_costs_a_moment_and_not_the_answer(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = EmbeddedServer(tmp_path_factory.mktemp("v"))
    await asyncio.to_thread(server.start)
    state = State(server.url, timeout_s=0.3)
    await state.open()
    log = IndexLog(state, "cache")
    cache = Cache(state, log, FakeEmbedder())
    await cache.open()
    pid = server.pid
    assert pid is not None
    try:
        worker = Worker(cache, state, log)
        await worker.serve(request(), tenant())
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(20):
            other = [await worker.ask(request(f"What is {number} + 1?"), tenant()) for number in range(20)]
            # at hand, while it cannot be out of date
            await until(lambda: worker.misses(request(), tenant()))
        assert {seen.cache for seen in other} == {"miss"}
        seen = await worker.ask(request(), tenant())
        assert (seen.cache, seen.degraded) == ("miss", {"state"})
    finally:
        os.kill(pid, signal.SIGCONT)
        await cache.aclose()
        await state.aclose()
        await asyncio.to_thread(server.stop)


async def test_closing_a_cache_that_was_never_opened_is_fine(state: State) -> None:
    await Cache(state, IndexLog(state, "cache"), None).aclose()


async def test_one_that_has_caught_up_counts_what_others_stored(worker: Worker, state: State) -> None:
    for number in range(5):
        await worker.serve(request(f"What is {number} + 1?"), tenant())
    late = Cache(state, IndexLog(state, "cache"), None)
    await late.open()
    await late.caught_up(5.0)
    assert await late.flush("search", dry_run=True) == 5
    await late.aclose()


async def test_what_is_at_hand_counts_only_while_the_server_has_the_same_data(
    worker: Worker, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = tenant(cache={"semantic": {"enabled": False}})
    await worker.serve(request(), who)
    assert (await worker.ask(request(), who)).cache == "exact"
    assert worker.cache.stats()["recalled"] == 1
    monkeypatch.setattr(type(state), "epoch", property(lambda _: "another"))
    assert (await worker.ask(request(), who)).cache == "exact"  # by asking the server
    assert worker.cache.stats()["recalled"] == 1
