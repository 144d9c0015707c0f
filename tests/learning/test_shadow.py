"""Comparisons on the side: who is asked, who pays, how much at most, and what becomes of the findings."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.fakes.provider import Fail, Reply
from tests.learning.conftest import School, pupil


async def test_what_the_cheap_one_answered_is_asked_of_the_reference_too(school: School) -> None:
    assert await school.ask(1, pupil()) == "small"
    (found,) = await school.findings()
    assert (found["backend"], found["reference"], found["source"]) == ("small", "large", "shadow")
    assert (found["judge"], found["score"], found["team"]) == ("agreement", 1.0, "search")
    assert 0.5 < found["target"] <= found["predicted"] < 1


async def test_a_comparison_is_a_row_of_the_request_that_the_team_pays(school: School) -> None:
    await school.ask(1, pupil())
    rows = await school.house.rows()
    assert [(row["backend"], row["kind"], row["outcome"]) for row in rows] == [
        ("small", "", "ok"),
        ("large", "shadow", "ok"),
    ]
    assert len({row["request_id"] for row in rows}) == 1
    assert len({row["id"] for row in rows}) == 2
    spent = {team: spend_cap["spent_pico"] for team, spend_cap in (await school.purses()).items()}
    assert spent == {"": rows[1]["cost_pico"], "search": rows[1]["cost_pico"]}
    assert all(spend_cap["held_pico"] == 0 for spend_cap in (await school.purses()).values())


async def test_a_streamed_answer_is_compared_as_well(school: School) -> None:
    assert await school.ask(1, pupil(), stream=True, stream_options={"include_usage": True}) == "small"
    assert [found["score"] for found in await school.findings()] == [1.0]
    assert "stream" not in school.large.last.json


async def test_without_a_share_nothing_is_compared(school: School) -> None:
    await school.ask(1, pupil(trials={}))
    assert await school.findings() == []
    assert len(await school.house.rows()) == 1


CAP = Decimal("0.0150")
"""Two answers of the reference at the longest that is allowed them, and a bit."""


@pytest.mark.parametrize(("school", "whose"), [(Decimal(1000), "team"), (CAP, "")], indirect=["school"])
async def test_a_cap_is_never_exceeded(school: School, whose: str) -> None:
    who = pupil(trials={"share": 1, "cap_usd": CAP if whose else 100})
    school.large.default = Reply(tokens=450)
    for number in range(12):
        await school.ask(number, who)
    spent = (await school.purses())["search" if whose else ""]
    shadows = [row for row in await school.house.rows() if row["kind"] == "shadow"]
    assert 0 < spent["spent_pico"] <= int(CAP * 10**12)
    assert spent["spent_pico"] == sum(row["cost_pico"] for row in shadows)
    assert school.shadows.stats()["unpaid"] == 12 - len(shadows) > 0


async def test_an_exhausted_budget_pays_for_no_comparison(school: School) -> None:
    who = pupil(budget={"limit_usd": "0.0005", "window": "day"})
    await school.ask(1, who)
    assert [row["kind"] for row in await school.house.rows()] == [""]
    assert school.shadows.stats()["unpaid"] == 1


async def test_a_comparison_that_fails_is_booked_and_gives_its_money_back(school: School) -> None:
    school.large.default = Fail(500)
    assert await school.ask(1, pupil()) == "small"
    assert await school.findings() == []
    assert {row["kind"] for row in await school.house.rows() if row["backend"] == "large"} == {"shadow"}
    assert {(one["held_pico"], one["spent_pico"]) for one in (await school.purses()).values()} == {(0, 0)}


async def test_observed_requests_are_compared_with_what_was_decided(school: School) -> None:
    assert await school.ask(1, pupil(mode="observe")) == "large"
    (found,) = await school.findings()
    assert (found["backend"], found["reference"], found["source"]) == ("small", "large", "holdout")


async def test_tools_of_the_providers_own_are_not_asked_twice(school: School) -> None:
    await school.ask(1, pupil(), web_search_options={})
    assert await school.findings() == []


async def test_a_blind_judge_sees_both_orders_and_no_names(school: School) -> None:
    who = pupil(trials={"share": 1, "cap_usd": 100, "judge": "large"})
    school.small.default = Reply(text="It is forty-two, my friend.")
    school.large.script(Reply(text="Forty-two it is."), Reply(text="A"), Reply(text="B"))
    await school.ask(1, who)
    (found,) = await school.findings()
    assert (found["judge"], found["score"]) == ("large", 1.0)
    first, second = (exchange.json["messages"][-1]["content"] for exchange in list(school.large.exchanges)[-2:])
    assert first.index("my friend") < first.index("it is.")
    assert second.index("it is.") < second.index("my friend")
    assert "small" not in first
    assert [row["kind"] for row in await school.house.rows()].count("shadow") == 3


async def test_a_judge_who_always_says_the_first_one_counts_half(school: School) -> None:
    who = pupil(trials={"share": 1, "cap_usd": 100, "judge": "large"})
    school.small.default = Reply(text="It is forty-two, my friend.")
    school.large.script(Reply(text="Forty-two it is."), Reply(text="A"), Reply(text="A"))
    await school.ask(1, who)
    assert [found["score"] for found in await school.findings()] == [0.5]
