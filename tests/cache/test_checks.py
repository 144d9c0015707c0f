"""From a semantic hit to what every worker knows about it, through the packages that serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.cache import cache
from gateway.domain.protocols import FreshAnswer
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.state.redis.connection import State
from tests.cache.conftest import completion, request, tenant
from tests.fakes.embedder import FakeEmbedder
from tests.support.waiting import until


class Buyer:
    def __init__(self) -> None:
        self.asked: list[CompletionRequest] = []

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> FreshAnswer | None:
        self.asked.append(request)
        return FreshAnswer(completion("No, it is 5 others."), 500)


async def test_a_hit_that_was_wrong_is_found_and_all_workers_hear_of_it(
    make_worker: Callable[..., Any], state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "TIDY_S", 0.05)
    one, two = await make_worker(FakeEmbedder(), checks=1.0), await make_worker(FakeEmbedder(), checks=1.0)
    buyer, who = Buyer(), tenant()
    one.cache.check_with(buyer)
    await one.serve(request("How do I cook rice?"), who)
    asked = request("how do i cook rice")
    assert (await one.ask(asked, who)).cache == "semantic"
    await until(lambda: bool(two.cache.errors()))
    for worker in (one, two):
        (told,) = worker.cache.errors()
        assert told["scope"] == "team/default/search"
        assert (told["hits"], told["checked"], told["wrong"]) == (1, 1, 1)
    assert buyer.asked == [asked]
    assert asked.vector is not None, "whoever needs it after the cache has it"
    assert one.cache.stats()["hits_checked_wrong"] == 1
    assert two.cache.stats()["hits_checked_wrong"] == 0


async def test_exact_hits_are_not_checked(make_worker: Callable[..., Any]) -> None:
    worker, buyer, who = await make_worker(FakeEmbedder(), checks=1.0), Buyer(), tenant()
    worker.cache.check_with(buyer)
    await worker.serve(request("How do I cook rice?"), who)
    assert (await worker.ask(request("How do I cook rice?"), who)).cache == "exact"
    assert worker.cache.stats()["hits_checked"] == 0
    assert not buyer.asked
