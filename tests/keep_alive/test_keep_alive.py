"""Calls that keep prompts in the provider's cache: sent once, billed once, and never when they should not be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.context.strategies.keep_alive import share_of_returns
from gateway.domain.tenant import Tenant
from gateway.errors import BackendRefused, BudgetExhausted
from gateway.keep_alive.keep_alive import AT_A_TIME
from gateway.keep_alive.returns import Returns
from gateway.ledger.reports.holdout import calls, has_cuts, least_requests
from gateway.ledger.reports.report import usage
from gateway.ledger.reports.requests import Filter, recent
from gateway.state.redis.connection import State
from tests.fakes.provider import Fail, Reply
from tests.keep_alive.conftest import READ, WRITTEN, Kept, keeping, sent
from tests.support.requests import user
from tests.support.waiting import until

MORE: tuple[dict[str, Any], ...] = ({"role": "assistant", "content": "yes"}, user("more " * 8000))
"""So much that the prompt is not cached for an hour."""


def session_of(kept: Kept) -> bytes:
    route = kept.gateway.record.route
    assert route is not None
    assert route.prefix is not None
    return route.prefix.session


async def test_an_idle_sessions_prompt_is_read_once_with_the_smallest_answer_and_billed_once(kept: Kept) -> None:
    kept.claude.script(WRITTEN, READ)
    await kept.ask(keeping())
    await kept.counted("sent")
    first, second = sent(kept.claude)
    assert second["max_tokens"] == 1
    assert {**second, "max_tokens": 0, "stream": False} == {**first, "max_tokens": 0}  # also equal marks
    assert "cache_control" in first["messages"][-1]["content"][-1]
    rows = await kept.gateway.rows()
    assert [(row["kind"], row["outcome"], row["session"]) for row in rows] == [
        ("", "ok", "s1"),
        ("keep_alive", "ok", "s1"),
    ]
    assert rows[1]["cached_tokens"] == rows[0]["cache_write_5m_tokens"] > 7000
    assert 0 < rows[1]["cost_pico"] < rows[0]["cost_pico"] / 5
    assert kept.keep.stats()["waiting"] == 0


async def test_reports_count_its_cost_but_not_a_request(kept: Kept) -> None:
    kept.claude.script(WRITTEN, READ)
    who = keeping()
    await kept.ask(who)
    await kept.counted("sent")
    rows, run = await kept.gateway.rows(), kept.gateway.database.run
    assert await run(lambda link: calls(link, "search", 0.0, "keep_alive")) == (1, rows[1]["cost_pico"])
    assert await run(lambda link: has_cuts(link, "search", 0.0))
    assert least_requests(who.policy.context) == 1
    shown = await run(lambda link: recent(link, Filter(team="search"), 10))
    assert [row.request_id for row in shown] == [rows[0]["request_id"]]
    report = await usage(kept.gateway.database, team="search")
    assert report.total.requests == 1
    assert report.total.cost_pico == sum(row["cost_pico"] for row in rows)


async def test_the_stored_time_of_the_cache_is_renewed_by_the_call(kept: Kept) -> None:
    kept.claude.script(WRITTEN, READ, READ)
    await kept.ask(keeping())
    await kept.counted("sent")
    await kept.ask(keeping(), *MORE)
    marks = sent(kept.claude)[2]["messages"]
    assert "cache_control" in marks[0]["content"][-1]  # the end of the last request is still taken for cached
    learned = kept.state.key("keep_alive", "returns", "search")
    await until(lambda: kept.state.call("HGET", learned, "agent_yes"))  # it has continued in time


async def test_a_session_that_continues_cancels_its_call(patient: Kept) -> None:
    await patient.ask(keeping())
    assert patient.keep.stats()["waiting"] == 1
    await patient.ask(keeping(), *MORE)
    assert patient.keep.stats()["waiting"] == 1  # only the latest request waits
    await patient.keep.aclose()
    assert await patient.kinds() == [("", "ok")] * 2


async def test_a_session_that_continued_on_another_worker_gets_no_call(soon: Kept) -> None:
    await soon.ask(keeping())
    await soon.noted(session_of(soon))
    await Returns(soon.state).asked(session_of(soon), "req_other", "search", agent=True)
    await soon.counted("continued")
    assert len(soon.claude.exchanges) == 1


@pytest.mark.parametrize(
    ("who", "fields"),
    [
        (keeping(context={"keep_alive": False}), {}),
        (keeping(context={"prompt_cache": "client"}), {}),
        (keeping(context={"holdout": 1.0}), {}),
        (keeping(), {"untouched": True}),
        (keeping(), {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000}),
    ],
    ids=["off by default", "own marks", "held out", "untouched", "thinking budget"],
)
async def test_nothing_waits(patient: Kept, who: Tenant, fields: dict[str, Any]) -> None:
    await patient.ask(who, **fields)
    assert patient.keep.stats()["waiting"] == 0


async def test_a_prompt_that_was_not_cached_does_not_wait(patient: Kept) -> None:
    patient.claude.script(Reply(text="yes"))
    await patient.ask(keeping())
    assert patient.keep.stats()["waiting"] == 0


async def test_a_request_that_a_budget_refuses_is_forgotten_and_displaces_no_session(two: Kept) -> None:
    await two.ask(keeping(), session="mine")
    for number in range(3):
        with pytest.raises(BudgetExhausted):
            await two.ask(keeping(budget={"limit_usd": "0.05"}), session=f"s{number}")
    assert (two.keep.stats()["waiting"], two.keep.stats()["dropped"]) == (1, 0)


async def test_a_request_that_fails_is_forgotten(patient: Kept) -> None:
    patient.claude.script(Fail(400))
    with pytest.raises(BackendRefused):
        await patient.ask(keeping())
    assert patient.keep.stats()["waiting"] == 0


async def test_many_sessions_of_one_key_displace_no_session_of_another(two: Kept) -> None:
    await two.ask(keeping(), session="mine")
    for number in range(3):
        await two.ask(keeping(key="key_2"), session=f"s{number}")
    assert two.keep.stats()["dropped"] == 2
    await two.ask(keeping(), *MORE, session="mine")  # it still has its place, so no other is given up
    assert (two.keep.stats()["waiting"], two.keep.stats()["dropped"]) == (2, 2)


async def test_a_budget_that_cannot_pay_the_call_is_not_overrun(kept: Kept) -> None:
    await kept.ask(keeping(budget={"limit_usd": "0.05"}))
    await kept.counted("unpaid")
    assert await kept.kinds() == [("", "ok")]


async def test_a_revoked_key_gets_no_call(kept: Kept) -> None:
    await kept.ask(keeping())
    kept.revoked.add("key_1")
    await kept.counted("failed")
    assert await kept.kinds() == [("", "ok")]


async def test_after_a_change_of_the_policy_no_call_is_sent(kept: Kept) -> None:
    await kept.ask(keeping())
    kept.gateway.record.tenant = keeping(mode="observe")
    await kept.counted("changed")
    assert await kept.kinds() == [("", "ok")]


async def test_a_worker_that_ends_sends_no_call(ending: Kept) -> None:
    await ending.ask(keeping())
    await ending.counted("changed")
    assert await ending.kinds() == [("", "ok")]


async def test_a_call_in_flight_is_one_row_if_the_worker_ends(kept: Kept) -> None:
    kept.claude.script(WRITTEN, Reply(delay_s=60))
    await kept.ask(keeping())
    await until(lambda: len(kept.claude.exchanges) == 2)
    await kept.keep.aclose()
    assert await kept.kinds() == [("", "ok"), ("keep_alive", "interrupted")]
    assert not kept.keep.stats()["sent"]


async def test_a_failed_call_is_a_row_without_cost_and_the_session_goes_on(kept: Kept) -> None:
    kept.claude.script(WRITTEN, Fail(400))
    await kept.ask(keeping())
    await kept.counted("failed")
    await kept.ask(keeping(), *MORE)
    rows = await kept.gateway.rows()
    assert [(row["kind"], row["outcome"]) for row in rows][:2] == [("", "ok"), ("keep_alive", "failed")]
    assert not rows[1]["cost_pico"]


async def test_after_a_call_that_did_not_find_the_prompt_no_more_are_sent(kept: Kept) -> None:
    await kept.ask(keeping())  # the provider writes the prompt again
    await kept.counted("unread")
    await kept.ask(keeping(), *MORE)
    await kept.counted("unworthy")
    assert len(kept.claude.exchanges) == 3


async def test_few_calls_are_in_flight(soon: Kept) -> None:
    soon.claude.script(*[WRITTEN] * (AT_A_TIME + 2))
    soon.claude.default = Reply(delay_s=60)
    for number in range(AT_A_TIME + 2):
        await soon.ask(keeping(), session=f"s{number}")
    await until(lambda: len(soon.claude.exchanges) == 2 * AT_A_TIME + 2)
    await asyncio.sleep(0.1)
    assert len(soon.claude.exchanges) == 2 * AT_A_TIME + 2


async def test_the_share_of_returns_is_learned_from_idle_sessions(state: State) -> None:
    returns = Returns(state)
    await returns.asked(b"one", "req_1", "search", agent=True)
    assert await returns.idle(b"one", "req_1", "search", agent=True) == share_of_returns(0.45, 0, 0)
    await returns.asked(b"one", "req_2", "search", agent=True)
    assert await returns.idle(b"one", "req_1", "search", agent=True) is None
    assert await returns.idle(b"one", "req_2", "search", agent=True) == share_of_returns(0.45, 1, 1)
    assert await returns.idle(b"one", "req_2", "search", agent=True) == share_of_returns(0.45, 2, 1)
    assert share_of_returns(0.45, 1000, 20) < 0.05
