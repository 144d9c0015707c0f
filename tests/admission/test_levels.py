from __future__ import annotations

import asyncio
from zoneinfo import ZoneInfo

import pytest

from gateway.admission.budgets import Budgets
from gateway.domain.money.budget import Budget
from gateway.domain.protocols import BudgetChecker, SpentReader
from gateway.domain.tenant import Tenant
from gateway.domain.units import PICO_PER_USD
from gateway.errors import BudgetExhausted
from gateway.state.redis.connection import State
from tests.admission.conftest import (
    BEGINNING,
    JANUARY,
    Clock,
    Ledger,
    asking,
    backend,
    budgets_on,
    record,
    released,
    tenant,
)
from tests.support.waiting import until

MADRID = ZoneInfo("Europe/Madrid")


async def spend(
    budgets: Budgets, who: Tenant, nano: int, end_user: str = "", at: float = BEGINNING, session: str = ""
) -> None:
    seen = record(who, at=at)
    seen.end_user, seen.session = end_user, session
    with released(budgets.hold(who, seen, asking(10))) as hold:
        await hold.extend(backend(), 10)
        hold.settle(nano * 1000)


async def test_each_key_has_its_own_budget_below_the_team_s(state: State) -> None:
    both = [{"limit_usd": "0.02", "window": "day"}, {"limit_usd": "0.01", "window": "day", "per": "key"}]
    async with budgets_on(state, ledger := Ledger()) as budgets:
        one, two, three = (tenant(key, budget=both) for key in ("k1", "k2", "k3"))
        await spend(budgets, one, 10_000_000)
        with pytest.raises(BudgetExhausted, match=r"Key k1 of team search has spent its budget of 0\.01 USD today"):
            await budgets.refuse_exhausted(one)
        await budgets.refuse_exhausted(two)
        await spend(budgets, two, 9_999_000)
        with pytest.raises(BudgetExhausted, match=r"team search has 0\.000001 USD left of its budget of 0\.02 USD"):
            await spend(budgets, three, 1)
        assert BudgetChecker(team="search", key_id="k1") in ledger.payers
        assert BudgetChecker(team="search") in ledger.payers


async def test_teams_share_what_the_operator_gives_their_organisation(state: State) -> None:
    above = {"acme": (Budget(limit_usd="0.01", window="month", per="organisation"),)}  # type: ignore[arg-type]
    async with budgets_on(state, ledger := Ledger(), organisations=above) as budgets:
        one, other = tenant("k1", organisation="acme"), tenant("k2", organisation="else")
        await spend(budgets, one, 10_000_000)
        with pytest.raises(BudgetExhausted, match=r"Organisation acme .*organisations\.acme\.budget\.limit_usd"):
            await budgets.refuse_exhausted(one)
        await budgets.refuse_exhausted(other)
        assert ledger.payers == [BudgetChecker(organisation="acme")]


async def test_dollars_and_tokens_both_hold(state: State) -> None:
    both = [{"limit_usd": "1", "window": "day"}, {"limit_tokens": 100, "window": "day", "on_exhausted": "truncate"}]
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant(budget=both)
        with released(budgets.hold(who, record(who), asking(1000))) as hold:
            await hold.extend(backend(), 10)
            assert hold.output_limit is not None
            assert hold.output_limit < 90


async def test_an_end_user_s_budget_is_theirs_alone_and_rebuilt_from_the_ledger(state: State) -> None:
    ledger = Ledger()
    ledger.users["ann"] = SpentReader(PICO_PER_USD, 0)
    async with budgets_on(state, ledger) as budgets:
        who = tenant(budget={"limit_usd": "0.5", "window": "month", "per": "end_user"})
        with pytest.raises(BudgetExhausted, match="This end user of team search has spent"):
            await budgets.refuse_exhausted(who, "ann")
        await budgets.refuse_exhausted(who, "bob")
        await spend(budgets, who, 499_990_000, "bob")
        await spend(budgets, who, 600_000_000)  # nobody was named, so nobody's budget is looked at
        with pytest.raises(BudgetExhausted, match=r"this end user of team search has 0\.00001 USD left"):
            await spend(budgets, who, 1, "bob")


async def test_a_session_s_budget_is_its_own_beside_those_of_its_end_user(state: State) -> None:
    ledger = Ledger()
    ledger.users["run-1"] = SpentReader(PICO_PER_USD, 0)
    both = [
        {"limit_usd": "0.35", "window": "total", "per": "session"},
        {"limit_usd": "0.7", "window": "day", "per": "end_user"},
    ]
    async with budgets_on(state, ledger) as budgets:
        who = tenant(budget=both)
        with pytest.raises(BudgetExhausted, match=r"This session of team search has spent its budget of 0\.35 USD"):
            await budgets.refuse_exhausted(who, "ann", session="run-1")
        await budgets.refuse_exhausted(who, "ann", session="run-2")
        for session in ("run-2", "run-3"):
            await spend(budgets, who, 349_995_000, "ann", session=session)
        with pytest.raises(BudgetExhausted, match="this end user of team search"):
            await spend(budgets, who, 1, "ann", session="run-4")
        with pytest.raises(BudgetExhausted, match="this session of team search"):
            await spend(budgets, who, 1, "bob", session="run-3")
        await spend(budgets, who, 900_000_000)  # without a session, no session's budget counts


async def test_two_thousand_end_users_at_once_are_looked_up_together_and_forgotten(state: State) -> None:
    ledger = Ledger()
    async with budgets_on(state, ledger) as budgets:
        who = tenant(budget={"limit_usd": "0.5", "window": "day", "per": "end_user"})
        await asyncio.gather(*(spend(budgets, who, 10, f"user {number}") for number in range(2000)))
        assert sum(ledger.together) == 2000
        assert len(ledger.together) < 100
        await until(lambda: not budgets.stats()["leases.leases"])
        keys = await state.call("KEYS", state.key("*end_user*"))
        assert len(keys) == 2000
        assert 0 < await state.call("PTTL", keys[0]) <= 3_600_000


async def test_a_soft_budget_refuses_nobody_and_tells(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant(budget={"limit_usd": "0.001", "window": "day", "hard": False, "name": "hint"})
        await spend(budgets, who, 2_000_000)
        await budgets.refuse_exhausted(who)
        seen = record(who)
        with released(budgets.hold(who, seen, asking(10))) as hold:
            await hold.extend(backend(), 10)
        assert seen.over_budget == ("hint",)


@pytest.mark.parametrize(
    ("window", "now", "whole_again"),
    [
        ("day", 1_774_738_800.0 + 3600, "2026-03-29T22:00:00Z"),  # 29 March 2026, when clocks go forward: 23 hours
        ("day", 1_792_879_200.0 + 3600, "2026-10-25T23:00:00Z"),  # 25 October 2026, back: 25 hours
        ("month", 1_772_300_000.0, "2026-02-28T23:00:00Z"),  # the last day of February
        ("hour", 1_792_879_200.0 + 2 * 3600 + 60, "2026-10-25T01:00:00Z"),  # two o'clock, for the first time
    ],
)
async def test_windows_end_by_the_clocks_of_their_zone(state: State, window: str, now: float, whole_again: str) -> None:
    async with budgets_on(state, Ledger(), clock=Clock(now)) as budgets:
        who = tenant(budget={"limit_usd": "0.01", "window": window, "timezone": "Europe/Madrid"})
        await spend(budgets, who, 10_000_000, at=now)
        with pytest.raises(BudgetExhausted, match=f"It begins anew at {whole_again}"):
            await budgets.refuse_exhausted(who)


async def test_a_clock_that_jumps_back_finds_the_old_window_as_it_was_left(state: State) -> None:
    clock = Clock(JANUARY + 30)
    async with budgets_on(state, Ledger(), clock=clock) as budgets:
        who = tenant(budget={"limit_usd": "0.01", "window": "month"})
        await spend(budgets, who, 10_000_000, at=clock.now)
        clock.now = JANUARY - 30
        await budgets.refuse_exhausted(who)  # December was never used
        clock.now = JANUARY + 31
        with pytest.raises(BudgetExhausted):
            await budgets.refuse_exhausted(who)
