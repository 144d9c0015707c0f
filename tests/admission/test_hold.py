from __future__ import annotations

import asyncio
import contextlib

import pytest

from gateway.domain.backend import Backend
from gateway.domain.tenant import Tenant
from gateway.domain.usage import Usage
from gateway.errors import BudgetExhausted
from gateway.state.connection import State
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


async def test_an_unpriced_backend_is_noted_and_a_simulated_one_is_not(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        seen = record(who)
        hold = budgets.hold(who, seen, asking(5))
        await hold.extend(backend("house"), 10)
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


async def test_a_stream_holds_what_is_expected_and_grows(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.02")
        seen = record(who, stream=True)
        with released(budgets.hold(who, seen, asking(stream=True))) as hold:
            await hold.extend(backend(), 100)
            begun = hold.held
            assert begun < 513 * 10_000 + 130 * 1000
            assert hold.covers < 512
            await hold.grow(200)
            assert hold.held == begun
            await hold.grow(500)
            assert hold.held > begun
            tokens = 500
            with contextlib.suppress(BudgetExhausted):
                for tokens in range(500, 3000, 5):
                    await hold.grow(tokens)
            assert 1900 < tokens < 2000  # 0.02 USD pay for 1990 tokens of output
            assert hold.held >= 10_000 * (tokens - 5)


async def test_a_stream_that_cannot_outgrow_its_hold_never_asks(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        with released(budgets.hold(who, record(who, stream=True), asking(300, stream=True))) as hold:
            await hold.extend(backend(), 100)
            assert hold.covers == float("inf")


async def test_near_the_end_a_plain_answer_is_capped_at_what_is_held(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.05")
        with released(budgets.hold(who, record(who), asking(4000))) as hold:
            await hold.extend(backend(), 10)
            assert hold.output_limit == 512
            assert hold.held < 513 * 10_000 + 20_000


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
                    await hold.extend(backend("classes"), tokens)
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


async def test_without_experience_a_stream_begins_with_a_share_of_the_budget(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = cutting(20_000)
        holds = [budgets.hold(who, record(who, stream=True), asking(1000, stream=True)) for _ in range(128)]
        for hold in holds:
            await hold.extend(backend(), 10)
        assert 100 < holds[0].held < 200
        assert sum(hold.held for hold in holds) < 20_000
        for hold in holds:
            hold.release()


async def test_with_experience_it_begins_with_what_answers_take(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = cutting(20_000)
        for tokens in (20, 30, 40, 50) * 5:
            hold = budgets.hold(who, seen := record(who, stream=True), asking(1000, stream=True))
            await hold.extend(backend(), 10)
            close(seen, hold, backend(), Usage(10, output_tokens=tokens))
        with released(budgets.hold(who, record(who, stream=True), asking(1000, stream=True))) as hold:
            await hold.extend(backend(), 10)
            assert 50 <= hold.held <= 70


async def test_a_stream_may_use_the_whole_budget_but_for_what_is_on_its_way(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = cutting(2000)
        with released(budgets.hold(who, record(who, stream=True), asking(None, stream=True))) as hold:
            await hold.extend(backend(), 100)
            refused, tokens = None, 0
            while refused is None:
                tokens += 1
                try:
                    await hold.grow(tokens)
                except BudgetExhausted as error:
                    refused = error
            assert refused.truncates
            assert 1840 < tokens < 2000 - 100
            assert tokens + 100 < hold.held <= 2000


async def test_what_one_stream_does_not_need_the_others_get(state: State) -> None:
    async with budgets_on(state, Ledger()) as one, budgets_on(state, Ledger()) as two:
        who = cutting(400)
        first, second = (each.hold(who, record(who, stream=True), asking(1000, stream=True)) for each in (one, two))
        await first.extend(backend(), 10)
        await second.extend(backend(), 10)
        while first.held < 300:
            await first.grow(int(first.covers) + 1)
        held = second.held
        first.settle(0)
        await asyncio.sleep(0.2)
        await second.grow(int(second.covers) + 1)
        assert second.held > held
        second.release()


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
                    await hold.grow(tokens)
            assert hold.held >= 3000
            close(seen, hold, backend(), Usage(10, output_tokens=3000))
        await asyncio.sleep(0.2)  # until what it had set aside beyond the limit is given up
        with pytest.raises(BudgetExhausted, match="has spent its budget of 1000 tokens today"):
            await budgets.hold(who, record(who), asking(5)).extend(backend(), 10)
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
        who = broke()
        seen = record(who, stream=True)
        with released(budgets.hold(who, seen, asking(None))) as hold:
            await hold.extend(backend(), 100)
            first, covers = seen.attempt(backend()), hold.covers
            await hold.extend(backend(), 5000)
            seen.attempt(backend())
            held = hold.held
            hold.follow(first)
            assert hold.covers == covers
            await hold.grow(4000)
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
