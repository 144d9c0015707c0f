"""Answers that are bought to see whether the cache's was as good."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.cache.quality.hit_checker import text_of
from gateway.learning.cache_check import FreshAnswers
from tests.fakes.gateway import catalogue, tenant
from tests.fakes.provider import Fail, Reply
from tests.learning.conftest import ShadowedGateway
from tests.support.requests import small_request


def fresh_of(shadowed: ShadowedGateway) -> FreshAnswers:
    return FreshAnswers(shadowed.gateway.pipeline, shadowed.spend_cap, catalogue())


async def test_a_fresh_answer_is_bought_booked_as_shadow_and_not_kept(shadowed: ShadowedGateway) -> None:
    fresh = fresh_of(shadowed)
    for stream in (False, True):
        asked = small_request("how much is it", stream=stream)
        bought = await fresh.ask(asked, tenant())
        assert bought is not None
        assert text_of(bought.completion, asked.dialect) == "42"
        assert bought.cost_pico
    rows = await shadowed.gateway.rows()
    assert [(row["kind"], row["outcome"]) for row in rows] == [("shadow", "ok")] * 2
    spent = (await shadowed.caps())[""]
    assert (spent["spent_pico"], spent["held_pico"]) == (sum(row["cost_pico"] for row in rows), 0)
    assert shadowed.gateway.pipeline.cache.stats()["entries"] == 0


async def test_what_cannot_be_bought_is_none(shadowed: ShadowedGateway) -> None:
    fresh = fresh_of(shadowed)
    shadowed.small.script(Fail(400))
    assert await fresh.ask(small_request(), tenant()) is None
    broke = tenant(budget={"limit_usd": "0.000000000001"})
    assert await fresh.ask(small_request(), broke) is None
    shadowed.small.script(Reply(finish="length"))
    assert await fresh.ask(small_request(), tenant()) is None
    assert fresh.stats() == {"fresh_asked": 3, "fresh_unpaid": 1, "fresh_failed": 1}


@pytest.mark.parametrize("shadowed", [Decimal("0.000000000001")], indirect=True)
async def test_above_the_cap_nothing_is_bought(shadowed: ShadowedGateway) -> None:
    fresh = fresh_of(shadowed)
    assert await fresh.ask(small_request(), tenant()) is None
    assert fresh.stats()["fresh_unpaid"] == 1
    assert await shadowed.gateway.rows() == []
