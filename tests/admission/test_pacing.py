"""What presses on a team's routing: its own budgets and its organisation's, for as long as they run ahead of plan."""

from __future__ import annotations

import pytest

from gateway.admission.pacing import Pacer
from gateway.domain.money.budget import Budget
from gateway.state.redis.connection import State
from tests.admission.conftest import JANUARY, Clock, Ledger, budgets_on, spend, tenant

DOLLAR = 10**9
DAY_S = 86_400
PACED = {"enabled": True, "tolerance": 0.2}


async def test_a_budget_ahead_of_its_plan_presses_until_time_has_caught_up(state: State) -> None:
    clock = Clock(JANUARY + DAY_S / 2)
    async with budgets_on(state, Ledger(), clock=clock) as budgets:
        pacer = Pacer(budgets, clock=clock)
        who = tenant(budget={"limit_usd": 10, "window": "day"}, pacing=PACED)
        pacer.look()
        assert pacer.pressures == {}
        await spend(budgets, who, 5 * DOLLAR)
        pacer.look()
        assert pacer.pressures == {}
        await spend(budgets, who, 1 * DOLLAR)
        pacer.look()
        assert pacer.pressures == {"search": pytest.approx(0.5)}
        clock.now += 0.05 * DAY_S
        pacer.look()
        assert pacer.pressures == {"search": pytest.approx(0.25)}
        clock.now += 0.2 * DAY_S
        pacer.look()
        assert pacer.pressures == {}


async def test_the_budget_that_presses_hardest_counts_and_a_window_that_is_over_does_not(state: State) -> None:
    clock = Clock(JANUARY + DAY_S / 2)
    above = {"default": (Budget(limit_usd=10, window="day", per="organisation"),)}  # type: ignore[arg-type]
    async with budgets_on(state, Ledger(), clock=clock, organisations=above) as budgets:
        pacer = Pacer(budgets, clock=clock)
        who = tenant(budget={"limit_usd": 1000, "window": "day"}, pacing=PACED)
        await spend(budgets, who, 6 * DOLLAR)
        pacer.look()
        assert pacer.pressures == {"search": pytest.approx(0.5)}
        clock.now += DAY_S
        pacer.look()
        assert pacer.pressures == {}


async def test_without_pacing_and_for_single_keys_nothing_presses(state: State) -> None:
    clock = Clock(JANUARY)
    async with budgets_on(state, Ledger(), clock=clock) as budgets:
        pacer = Pacer(budgets, clock=clock)
        for who in (
            tenant(budget={"limit_usd": 10, "window": "day"}),
            tenant("k2", budget={"limit_usd": 10, "window": "day", "per": "key"}, pacing=PACED),
            tenant("k3", budget={"limit_usd": 10, "window": "total"}, pacing=PACED),
        ):
            await spend(budgets, who, 9 * DOLLAR)
        pacer.look()
        assert pacer.pressures == {}
        assert pacer.stats() == {"pressed": 0}


async def test_opened_it_looks_by_itself_and_closed_no_more(state: State) -> None:
    clock = Clock(JANUARY)
    async with budgets_on(state, Ledger(), clock=clock) as budgets:
        who = tenant(budget={"limit_usd": 10, "window": "day"}, pacing=PACED)
        await spend(budgets, who, 9 * DOLLAR)
        pacer = Pacer(budgets, clock=clock)
        await pacer.open()
        while not pacer.pressures:
            await spend(budgets, who, 1)
        await pacer.aclose()
        assert pacer.pressures["search"] == 1.0
