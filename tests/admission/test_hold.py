from __future__ import annotations

import asyncio
import contextlib

import pytest

from gateway.domain.backend import Backend
from gateway.errors import BudgetExhausted
from gateway.state.connection import State
from tests.admission.conftest import (
    Ledger,
    asking,
    backend,
    broke,
    budgets_on,
    record,
    released,
    spend,
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
