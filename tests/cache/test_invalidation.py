from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.cache.result import Hit
from gateway.domain.record import Record
from gateway.domain.request import Controls
from gateway.domain.tenant import Tenant
from gateway.state.redis.connection import State
from tests.cache.conftest import Worker, record, request, tenant
from tests.support.waiting import until

EXACT: dict[str, Any] = {"cache": {"semantic": {"enabled": False}}}


async def given(worker: Worker, who: Tenant, request_id: str) -> Record:
    """One that got its answer from the cache."""
    seen = record(who)
    seen.request_id = request_id
    assert isinstance(await worker.cache.lookup(request(), who, seen), Hit)
    return seen


async def test_an_answer_that_is_called_wrong_is_given_to_nobody_any_more(
    make_worker: Callable[..., Any], state: State
) -> None:
    one, two = await make_worker(), await make_worker()
    who = tenant(**EXACT)
    await one.serve(request(), who)
    await until(lambda: two.cache.stats()["entries"] == 1)
    await given(two, who, "req_7")
    await one.cache.wrong("req_7", "search")  # told to one, given by the other
    await until(lambda: not one.cache.stats()["entries"] and not two.cache.stats()["entries"])
    assert [(await worker.ask(request(), who)).cache for worker in (one, two)] == ["miss", "miss"]
    await two.cache.deliver()
    assert await state.call("KEYS", state.key("cache", "*")) == []
    await one.serve(request(), who)  # what is stored anew is another answer
    await until(lambda: two.cache.stats()["entries"] == 1)


@pytest.mark.parametrize(("request_id", "team"), [("req_8", "search"), ("req_7", "other")])
async def test_only_a_request_that_got_it_can_call_it_wrong(
    make_worker: Callable[..., Any], request_id: str, team: str
) -> None:
    worker = await make_worker()
    who = tenant(**EXACT)
    await worker.serve(request(), who)
    await given(worker, who, "req_7")
    await worker.cache.wrong(request_id, team)
    await worker.catch_up()
    assert (await worker.ask(request(), who)).cache == "exact"


async def test_what_one_worker_lets_go_for_room_the_others_forget(make_worker: Callable[..., Any]) -> None:
    one, two = await make_worker(), await make_worker()
    who = tenant(cache={"quota_answers": 2, "semantic": {"enabled": False}})
    for text in ("one", "two", "three"):
        await one.serve(request(text), who)
    await one.cache.deliver()
    await two.cache.caught_up(30)  # two are known also before the third one comes
    assert [(await two.ask(request(text), who)).cache for text in ("one", "two", "three")] == ["miss", "exact", "exact"]


async def test_answers_longer_than_the_policy_allows_are_not_kept(make_worker: Callable[..., Any]) -> None:
    worker = await make_worker()
    who = tenant(cache={"max_answer_bytes": 50})
    await worker.serve(request(), who)
    assert (worker.cache.stats()["entries"], worker.cache.stats()["unkept"]) == (0, 1)


async def test_a_flush_goes_by_the_beginning_of_a_tag_in_every_worker(make_worker: Callable[..., Any]) -> None:
    one, two = await make_worker(), await make_worker()
    for team, tag in (("a", "docs/1"), ("b", "docs/2"), ("b", "other/1")):
        await one.serve(request(tag, Controls(cache_tags=(tag,))), tenant(team, key=team, **EXACT))
    await until(lambda: two.cache.stats()["entries"] == 3)
    assert await two.cache.flush("b", prefix="docs/", dry_run=True) == 1
    assert await two.cache.flush("", prefix="docs/") == 2
    await until(lambda: one.cache.stats()["entries"] == 1)
