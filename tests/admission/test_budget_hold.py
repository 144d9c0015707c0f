from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.routing.route import Attached
from gateway.domain.tenant import Tenant
from gateway.errors import BudgetExhausted
from gateway.state.redis.connection import State
from tests.admission.conftest import (
    Ledger,
    asking,
    backend,
    broke,
    budgets_on,
    close,
    record,
    released,
    spend,
    tenant,
)
from tests.support.waiting import until


async def test_a_hold_covers_input_and_the_longest_plain_answer(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        with released(budgets.hold(who, record(who), asking(100))) as hold:
            await hold.extend(backend(), 1000)
            assert hold.held >= (1000 * 1 + 100 * 10) * 1000
            assert hold.held < (1300 * 1 + 100 * 10) * 1000
            assert hold.output_limit is None


async def test_leaving_without_settling_releases_the_hold(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.01")
        for _ in range(3):
            with released(budgets.hold(who, record(who), asking(900))) as hold:
                await hold.extend(backend(), 10)
        await spend(budgets, who, 9_000_000)
        hold = budgets.hold(who, record(who), asking(900))
        with pytest.raises(BudgetExhausted, match=r"may cost 0\.00\d+ USD .* has 0\.001 USD left"):
            await hold.extend(backend(), 10)


async def test_marks_of_the_gateway_are_held_for_as_cache_writes(state: State) -> None:
    """The client's bytes have none; a prompt that is written for an hour costs twice as much."""
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        claude = Backend(name="classes", kind="anthropic", base_url="http://127.0.0.1:1/v1", model="plain")
        held = []
        for marked in (False, True):
            with released(budgets.hold(who, record(who), asking(1))) as hold:
                await hold.extend(claude, 1000, marked=marked)
                held.append(hold.held)
        assert held[1] - held[0] > 900 * 1000 // 1000


async def test_an_unpriced_backend_is_noted_and_a_simulated_one_is_not(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        seen = record(who)
        hold = budgets.hold(who, seen, asking(5))
        await hold.extend(backend("house", tier="small"), 10)
        assert [note["what"] for note in seen.notes] == ["unpriced"]
        await hold.extend(Backend(name="play", kind="simulated", model="plain"), 10)
        assert len(seen.notes) == 1


async def test_a_failed_attempt_frees_what_was_held_for_it(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        seen = record(who)
        hold = budgets.hold(who, seen, asking(100))
        await hold.extend(backend("large"), 1000)
        dear = hold.held
        failed = seen.attempt(backend("large"))
        failed.outcome, failed.cost_pico = "failed", 0
        await hold.extend(backend("small"), 1000)
        assert hold.held < dear / 5
        weak = seen.attempt(backend("small"))  # still open while the stronger one is asked
        weak.outcome = "ok"
        held = hold.held
        await hold.extend(backend("large"), 1000)
        assert hold.held == held + dear


async def test_a_stream_holds_the_longest_answer_too(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        with released(budgets.hold(who, record(who, stream=True), asking(900, stream=True))) as hold:
            await hold.extend(backend(), 100)
            assert hold.held >= 900 * 10_000
            assert (hold.output_limit, hold.covers) == (None, 900 + 450 + 16)


async def test_a_call_of_unknown_length_is_not_capped_while_the_longest_answer_of_any_model_fits(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        for limit, window, cap in (("2", "month", None), ("1", "day", 2048)):
            who = broke(limit, window=window)
            for stream in (False, True):
                with released(budgets.hold(who, record(who, stream=stream), asking(stream=stream))) as hold:
                    await hold.extend(backend(), 10)
                    assert hold.output_limit == cap


async def test_an_answer_that_outgrows_its_cap_is_held_for_or_stopped(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.02")
        with released(budgets.hold(who, record(who, stream=True), asking(stream=True))) as hold:
            await hold.extend(backend(), 100)
            assert hold.output_limit is not None
            begun, cap = hold.held, hold.output_limit
            assert 1900 < cap < 2000
            await hold.grow(cap, 10 * cap)
            assert hold.held == begun
            assert hold.covers > 10 * cap
            with pytest.raises(BudgetExhausted):
                await hold.grow(cap * 8 // 5, 40 * cap)


async def test_a_stream_that_outgrows_the_clients_limit_is_held_for_or_stopped(state: State) -> None:
    """The backend ignored the limit."""
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.02")
        with released(budgets.hold(who, record(who, stream=True), asking(300, stream=True))) as hold:
            await hold.extend(backend(), 100)
            begun = hold.held
            assert hold.covers == 300 + 150 + 16
            await hold.grow(10, 500)
            assert hold.held == begun
            assert hold.covers == 500 + (466 - 10) * 2
            await hold.grow(466, 5000)
            assert hold.held >= begun + 400 * 10_000
            with pytest.raises(BudgetExhausted):
                await hold.grow(1900, 20_000)


async def test_the_delivered_text_is_looked_for_more_often_if_the_stream_is_mostly_text(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        with released(budgets.hold(who, record(who, stream=True), asking(300, stream=True))) as hold:
            await hold.extend(backend(), 100)
            for output, seen, frames in ((400, 500, 1), (100, 600, 2), (50, 5000, 2), (400, 2500, 3), (440, 9000, 8)):
                await hold.grow(output, seen)
                hold.covers, covers = 0, hold.covers
                assert covers == seen + (466 - output) * frames


@pytest.mark.parametrize("stream", [False, True])
async def test_near_the_end_an_answer_is_capped_at_what_is_held(state: State, stream: bool) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.03")
        with released(budgets.hold(who, record(who, stream=stream), asking(4000, stream=stream))) as hold:
            await hold.extend(backend(), 10)
            assert hold.output_limit == 2048
            assert hold.held < 2049 * 10_000 + 40_000


@pytest.mark.parametrize(
    "more", [{"needs": frozenset({"tools"})}, {"body": {"response_format": {"type": "json_object"}}}]
)
async def test_tool_calls_and_json_are_refused_rather_than_capped(state: State, more: dict[str, Any]) -> None:
    async with budgets_on(state, Ledger(), patience_s=0.1) as budgets:
        who = broke("0.03")
        hold = budgets.hold(who, record(who), replace(asking(4000), **more))
        with pytest.raises(BudgetExhausted, match=r"may cost 0\.04"):
            await hold.extend(backend(), 10)
        with released(budgets.hold(who, record(who), replace(asking(2000), **more))) as hold:
            await hold.extend(backend(), 10)
            assert hold.output_limit is None


async def test_a_reasoning_model_is_never_capped_below_what_reasoning_takes(state: State) -> None:
    async with budgets_on(state, Ledger(), patience_s=0.1) as budgets:
        thinking = backend(capabilities=["reasoning"])
        who = broke("0.03", window="day")
        with pytest.raises(BudgetExhausted):
            await budgets.hold(who, record(who), asking(10_000)).extend(thinking, 10)
        for _ in range(10):
            hold = budgets.hold(broke(), seen := record(broke()), asking(10_000))
            await hold.extend(thinking, 10)
            close(seen, hold, thinking, Usage(10, output_tokens=100, reasoning_tokens=1900))
        with released(budgets.hold(who, record(who), asking(10_000))) as hold:
            await hold.extend(thinking, 10)
            assert hold.output_limit is not None
            assert hold.output_limit >= 2000


async def test_a_refusal_never_stands_on_a_few_unusual_inputs(state: State) -> None:
    async with budgets_on(state, Ledger(), patience_s=0.1) as budgets:
        rich = broke("1000")
        for _ in range(10):
            hold = budgets.hold(rich, seen := record(rich), asking(100))
            await hold.extend(backend(), 100)
            close(seen, hold, backend(), Usage(100, output_tokens=10))
            seen.attempts[0].usage = None
        for counted in (100, 50):
            hold = budgets.hold(rich, seen := record(rich), asking(100))
            await hold.extend(backend(), counted)
            attempt = seen.attempt(backend())
            attempt.outcome, attempt.usage = "ok", Usage(100 * counted, output_tokens=10)
            hold.settle(0)
        who = broke("0.004", window="day")
        with released(budgets.hold(who, record(who), asking(100))) as hold:
            await hold.extend(backend(), 1500)  # by what was learned it would cost 0.007 USD
            assert hold.held <= (1501 * 1.25 + 24) * 1000 + 100 * 10_000


@pytest.mark.parametrize("counted", [40, 1500])
async def test_a_call_is_refused_if_the_budget_does_not_pay_for_the_input_that_is_usual(
    state: State, counted: int
) -> None:
    async with budgets_on(state, Ledger(), patience_s=0.1) as budgets:
        rich, who = broke("1000"), broke(f"{(counted * 1.7 + 1000) / 1e6:.6f}", window="day")
        for _ in range(10):
            hold = budgets.hold(rich, seen := record(rich), asking(100))
            await hold.extend(backend(), counted)
            attempt = seen.attempt(backend())
            attempt.outcome, attempt.usage = "ok", Usage(counted * 2, output_tokens=10)
            hold.settle(0)
        with released(budgets.hold(who, record(who), asking(100))) as hold, pytest.raises(BudgetExhausted):
            await hold.extend(backend(), counted)


async def test_an_answer_that_its_cap_has_ended_tells_the_ratio_of_the_input(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.03")
        for _ in range(6):
            hold = budgets.hold(who, seen := record(who), asking(4000))
            await hold.extend(backend(), 1000)
            assert hold.output_limit
            attempt = seen.attempt(backend())
            attempt.outcome, attempt.usage = "ok", Usage(3000, output_tokens=hold.output_limit)
            hold.settle(0)
        hold = budgets.hold(who, record(who), asking(10))
        await hold.extend(backend(), 1000)
        assert hold.held >= 3000 * 1000 + 10 * 10_000
        hold.release()


async def test_what_a_backend_adds_to_short_input_refuses_no_long_input(state: State) -> None:
    async with budgets_on(state, Ledger(), patience_s=0.1) as budgets:
        rich, who = broke("1000"), broke("0.03", window="day")
        for _ in range(20):
            hold = budgets.hold(rich, seen := record(rich), asking(100))
            await hold.extend(backend(), 100)
            attempt = seen.attempt(backend())
            attempt.outcome, attempt.usage = "ok", Usage(1600, output_tokens=10)
            hold.settle(0)
        with released(budgets.hold(who, record(who), asking(100))) as hold:
            await hold.extend(backend(), 20_000)


async def test_a_chat_template_is_held_for_before_anything_is_known_of_the_backend(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        with released(budgets.hold(who, record(who), asking(100))) as hold:
            await hold.extend(backend(), 9)
            assert hold.held >= (9 + 20) * 1000 + 100 * 10_000


async def test_input_that_is_shorter_than_expected_leaves_more_of_the_window_to_the_answer(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("100")
        with released(budgets.hold(who, record(who), asking(None))) as hold:
            await hold.extend(backend(window_tokens=8000), 4000)
            assert hold.held >= 4000 * 1000 + 4000 * 10_000


async def test_what_a_document_took_says_nothing_about_text(state: State) -> None:
    async with budgets_on(state, Ledger(), patience_s=0.1) as budgets:
        who = broke("10")
        for _ in range(3):
            hold = budgets.hold(who, seen := record(who), asking(100))
            await hold.extend(backend(), 50, Attached(document=40))
            attempt = seen.attempt(backend())
            attempt.outcome, attempt.usage = "ok", Usage(30_000, output_tokens=10)
            hold.settle(30_000_000)
        with released(budgets.hold(who, record(who), asking(100))) as hold:
            await hold.extend(backend(), 1000)
            assert hold.held < 1300 * 1000 + 101 * 10_000


async def test_the_answer_beside_what_may_fill_a_window_is_held_for(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("10")
        with released(budgets.hold(who, record(who), asking(900))) as hold:
            await hold.extend(backend(window_tokens=8000), 8010, Attached(document=8000))
            assert hold.held >= 8000 * 1000 + 900 * 10_000


async def test_a_backend_that_passes_over_its_limit_is_held_for_what_it_took(state: State) -> None:
    async with budgets_on(state, Ledger(), patience_s=0.1) as budgets:
        who = broke("1")
        hold = budgets.hold(who, seen := record(who), asking(100))
        await hold.extend(backend(), 10)
        close(seen, hold, backend(), Usage(10, reasoning_tokens=8000))
        with released(budgets.hold(who, record(who), asking(100))) as hold:
            await hold.extend(backend(), 10)
            assert hold.held >= 8000 * 10_000


async def test_a_hosted_backend_without_a_price_is_refused_unless_the_policy_allows_it(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        hosted = Backend(name="house", kind="openai", base_url="https://models.example.com/v1", model="plain")
        who = broke()
        with pytest.raises(BudgetExhausted, match=r"Nobody knows what plain on house costs.* on_unpriced: allow"):
            await budgets.hold(who, record(who), asking(5)).extend(hosted, 10)
        for kinder in (broke(on_unpriced="allow"), broke(hard=False), tenant(budget={"limit_tokens": 10_000})):
            with released(budgets.hold(kinder, record(kinder), asking(5))) as hold:
                await hold.extend(hosted, 10)
        with released(budgets.hold(who, record(who), asking(5))) as hold:
            await hold.extend(hosted.model_copy(update={"location": "local"}), 10)
            assert hold.held == 0


async def test_all_answers_of_a_request_are_held_for(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        with released(budgets.hold(who, record(who), asking(100, parallel=5))) as hold:
            await hold.extend(backend(), 10)
            assert hold.held >= 500 * 10_000


async def test_a_hold_is_enough_however_the_backend_sorts_its_tokens(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("1000")
        held = {}
        for raw in (b"{}", b'{"cache_control": {}}'):
            request = asking(100)
            request.raw = raw
            for tokens in (1000, 10_000):
                with released(budgets.hold(who, record(who), request)) as hold:
                    await hold.extend(backend("classes").model_copy(update={"kind": "anthropic"}), tokens)
                    held[raw == b"{}", tokens] = hold.held
        assert held[True, 1000] >= 1000 + 100 * 30
        assert held[False, 1000] >= held[True, 1000] + 1000
        assert held[True, 10_000] >= 90_000 + 100 * 90


async def test_a_hold_that_is_left_while_it_waits_holds_nothing(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.01")
        with released(budgets.hold(who, record(who), asking(900))) as first:
            await first.extend(backend(), 10)
            with released(budgets.hold(who, record(who), asking(900))) as second:
                waiting = asyncio.ensure_future(second.extend(backend(), 10))
                await asyncio.sleep(0.05)
            first.settle(0)
            await waiting
            assert second.held == 0
        with released(budgets.hold(who, record(who), asking(900))) as third:
            await third.extend(backend(), 10)


# ── answers that may end at the limit ──────────────────────────────────────────────────────────────────────────────


def cutting(tokens: int, **more: object) -> Tenant:
    return tenant(budget={"limit_tokens": tokens, "on_exhausted": "truncate", "window": "total", **more})


async def test_many_streams_share_a_small_budget_as_its_holds_end(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = cutting(20_000)
        served = 0

        async def ask() -> None:
            nonlocal served
            hold = budgets.hold(who, seen := record(who, stream=True), asking(1000, stream=True))
            await hold.extend(backend(), 10)
            await asyncio.sleep(0.02)
            close(seen, hold, backend(), Usage(10, output_tokens=40))
            served += 1

        await asyncio.gather(*(ask() for _ in range(128)))
        assert served == 128


async def test_a_stream_may_use_the_whole_budget(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = cutting(2000)
        with released(budgets.hold(who, record(who, stream=True), asking(None, stream=True))) as hold:
            await hold.extend(backend(), 100)
            assert hold.output_limit is not None
            assert 1840 < hold.output_limit < 1900
            with pytest.raises(BudgetExhausted) as refused:
                await hold.grow(3000, 20_000)
            assert refused.value.truncates


async def test_at_the_very_end_a_plain_answer_is_asked_for_with_what_is_left(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = cutting(200)
        with released(budgets.hold(who, record(who), asking(1000))) as hold:
            await hold.extend(backend(), 10)
            assert hold.output_limit is not None
            assert 150 < hold.output_limit < 190


async def test_finish_lets_running_answers_overdraw_and_refuses_new_ones(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant(budget={"limit_tokens": 1000, "on_exhausted": "finish", "window": "day"})
        with released(budgets.hold(who, seen := record(who, stream=True), asking(5000, stream=True))) as hold:
            await hold.extend(backend(), 10)
            for tokens in range(1, 3000):
                if tokens > hold.covers:
                    await hold.grow(tokens, tokens)
            assert hold.held >= 3000
            close(seen, hold, backend(), Usage(10, output_tokens=3000))

        async def refused_as_spent() -> bool:  # once what it had set aside beyond the limit is given up
            with released(budgets.hold(who, record(who), asking(5))) as late:
                try:
                    await late.extend(backend(), 10)
                except BudgetExhausted as refused:
                    return "has spent its budget of 1000 tokens today" in refused.message
            return False

        await until(refused_as_spent)
        free = budgets.hold(who, record(who), asking(5))
        await free.extend(backend("free"), 10)
        assert free.held == 0


async def test_tokens_of_free_backends_do_not_count_and_those_of_unpriced_ones_do(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = cutting(100)
        for name, usage in (("free", Usage(50, output_tokens=500)), ("house", Usage(30, output_tokens=60))):
            hold = budgets.hold(who, seen := record(who), asking(60))
            await hold.extend(backend(name), 10)
            attempt = seen.attempt(backend(name))
            attempt.usage, attempt.outcome = usage, "ok"
            hold.settle(0)
        with pytest.raises(BudgetExhausted, match="has 10 tokens left"):
            await budgets.hold(who, record(who), asking(60)).extend(backend(), 10)


async def test_the_attempt_that_is_served_is_the_one_that_grows(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke(on_exhausted="finish")
        seen = record(who, stream=True)
        with released(budgets.hold(who, seen, asking(None))) as hold:
            await hold.extend(backend(), 100)
            first, covers = seen.attempt(backend()), hold.covers
            await hold.extend(backend(), 5000)
            seen.attempt(backend())
            held = hold.held
            hold.follow(first)
            assert hold.covers == covers
            await hold.grow(4000, 4000)
            assert hold.covers > 3900
            assert hold.held > held
            first.ended_at = 1.0
            hold.follow(first)
            assert hold.covers == float("inf")


async def test_a_call_that_is_too_dear_changes_nothing_about_the_one_before(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.01")
        seen = record(who, stream=True)
        with released(budgets.hold(who, seen, asking(None))) as hold:
            await hold.extend(backend(), 100)
            first, covers, held = seen.attempt(backend()), hold.covers, hold.held
            for _ in range(2):
                with pytest.raises(BudgetExhausted):
                    await hold.extend(backend(), 10_000_000)
            hold.follow(first)
            assert (hold.covers, hold.held) == (covers, held)
