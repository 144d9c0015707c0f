"""Comparisons on the side: who is asked, who pays, how much at most, and what becomes of the findings."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.fakes.provider import Fail, Reply
from tests.learning.conftest import ShadowedGateway, shadowed_tenant


async def test_what_the_cheap_one_answered_is_asked_of_the_reference_too(shadowed: ShadowedGateway) -> None:
    assert await shadowed.ask(1, shadowed_tenant()) == "small"
    (found,) = await shadowed.findings()
    assert (found["backend"], found["reference"], found["source"]) == ("small", "large", "shadow")
    assert (found["judge"], found["score"], found["team"]) == ("agreement", 1.0, "search")
    assert 0.5 < found["target"] <= found["predicted"] < 1


async def test_a_comparison_is_a_row_of_the_request_that_the_team_pays(shadowed: ShadowedGateway) -> None:
    await shadowed.ask(1, shadowed_tenant())
    rows = await shadowed.gateway.rows()
    assert [(row["backend"], row["kind"], row["outcome"]) for row in rows] == [
        ("small", "", "ok"),
        ("large", "shadow", "ok"),
    ]
    assert len({row["request_id"] for row in rows}) == 1
    assert len({row["id"] for row in rows}) == 2
    spent = {team: spend_cap["spent_pico"] for team, spend_cap in (await shadowed.caps()).items()}
    assert spent == {"": rows[1]["cost_pico"], "search": rows[1]["cost_pico"]}
    assert all(spend_cap["held_pico"] == 0 for spend_cap in (await shadowed.caps()).values())


async def test_a_streamed_answer_is_compared_as_well(shadowed: ShadowedGateway) -> None:
    assert await shadowed.ask(1, shadowed_tenant(), stream=True, stream_options={"include_usage": True}) == "small"
    assert [found["score"] for found in await shadowed.findings()] == [1.0]
    assert "stream" not in shadowed.large.last.json


async def test_without_a_share_nothing_is_compared(shadowed: ShadowedGateway) -> None:
    await shadowed.ask(1, shadowed_tenant(trials={}))
    assert await shadowed.findings() == []
    assert len(await shadowed.gateway.rows()) == 1


CAP = Decimal("0.0150")
"""Two answers of the reference at the longest that is allowed them, and a bit."""


@pytest.mark.parametrize(("shadowed", "whose"), [(Decimal(1000), "team"), (CAP, "")], indirect=["shadowed"])
async def test_a_cap_is_never_exceeded(shadowed: ShadowedGateway, whose: str) -> None:
    who = shadowed_tenant(trials={"share": 1, "cap_usd": CAP if whose else 100})
    shadowed.large.default = Reply(tokens=450)
    for number in range(12):
        await shadowed.ask(number, who)
    spent = (await shadowed.caps())["search" if whose else ""]
    shadows = [row for row in await shadowed.gateway.rows() if row["kind"] == "shadow"]
    assert 0 < spent["spent_pico"] <= int(CAP * 10**12)
    assert spent["spent_pico"] == sum(row["cost_pico"] for row in shadows)
    assert shadowed.shadows.stats()["unpaid"] == 12 - len(shadows) > 0


async def test_an_exhausted_budget_pays_for_no_comparison(shadowed: ShadowedGateway) -> None:
    who = shadowed_tenant(budget={"limit_usd": "0.0005", "window": "day"})
    await shadowed.ask(1, who)
    assert [row["kind"] for row in await shadowed.gateway.rows()] == [""]
    assert shadowed.shadows.stats()["unpaid"] == 1


async def test_a_comparison_that_fails_is_booked_and_gives_its_money_back(shadowed: ShadowedGateway) -> None:
    shadowed.large.default = Fail(500)
    assert await shadowed.ask(1, shadowed_tenant()) == "small"
    assert await shadowed.findings() == []
    assert {row["kind"] for row in await shadowed.gateway.rows() if row["backend"] == "large"} == {"shadow"}
    assert {(one["held_pico"], one["spent_pico"]) for one in (await shadowed.caps()).values()} == {(0, 0)}


async def test_observed_requests_are_compared_with_what_was_decided(shadowed: ShadowedGateway) -> None:
    assert await shadowed.ask(1, shadowed_tenant(mode="observe")) == "large"
    (found,) = await shadowed.findings()
    assert (found["backend"], found["reference"], found["source"]) == ("small", "large", "holdout")


async def test_tools_of_the_providers_own_are_not_asked_twice(shadowed: ShadowedGateway) -> None:
    await shadowed.ask(1, shadowed_tenant(), web_search_options={})
    assert await shadowed.findings() == []


async def test_a_blind_judge_sees_both_orders_and_no_names(shadowed: ShadowedGateway) -> None:
    who = shadowed_tenant(trials={"share": 1, "cap_usd": 100, "judge": "large"})
    shadowed.small.default = Reply(text="It is forty-two, my friend.")
    shadowed.large.script(Reply(text="Forty-two it is."), Reply(text="A"), Reply(text="B"))
    await shadowed.ask(1, who)
    (found,) = await shadowed.findings()
    assert (found["judge"], found["score"]) == ("large", 1.0)
    first, second = (exchange.json["messages"][-1]["content"] for exchange in list(shadowed.large.exchanges)[-2:])
    assert first.index("my friend") < first.index("it is.")
    assert second.index("it is.") < second.index("my friend")
    assert "small" not in first
    assert [row["kind"] for row in await shadowed.gateway.rows()].count("shadow") == 3


async def test_a_judge_who_always_says_the_first_one_counts_half(shadowed: ShadowedGateway) -> None:
    who = shadowed_tenant(trials={"share": 1, "cap_usd": 100, "judge": "large"})
    shadowed.small.default = Reply(text="It is forty-two, my friend.")
    shadowed.large.script(Reply(text="Forty-two it is."), Reply(text="A"), Reply(text="A"))
    await shadowed.ask(1, who)
    assert [found["score"] for found in await shadowed.findings()] == [0.5]
