from __future__ import annotations

import asyncio
import os
import random
import signal

import pytest

from gateway.admission.budgets import Budgets
from gateway.domain.money.usage import Usage
from gateway.domain.tenant import Tenant
from gateway.domain.units import NANO_PER_USD, PICO_PER_USD
from gateway.errors import BudgetExhausted
from gateway.state.leases.leases import Leases
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from tests.admission.conftest import (
    Clock,
    Ledger,
    Prices,
    asking,
    backend,
    broke,
    budgets_on,
    close,
    counters,
    record,
    released,
    spend,
    states,
    tenant,
    until_settled,
    up_again,
)


async def exhausted(budgets: Budgets, who: Tenant) -> bool:
    """Whether a request is refused before the cache."""
    try:
        await budgets.refuse_exhausted(who)
    except BudgetExhausted:
        return True
    return False


async def test_without_budgets_everything_passes_and_nothing_is_held(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant()
        assert not await exhausted(budgets, who)
        with released(budgets.hold(who, record(who), asking())) as hold:
            await hold.extend(backend(), 10**9)
            await hold.grow(10**9, 10**9)
            hold.settle(5)
            assert (hold.held, hold.output_limit) == (0, None)


async def test_a_spent_budget_refuses_before_the_cache_or_only_what_costs(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.01")
        assert not await exhausted(budgets, who)
        await spend(budgets, who, 10_000_000)
        assert await exhausted(budgets, who)
        with pytest.raises(BudgetExhausted, match=r"has spent its budget of 0\.01 USD this month"):
            await budgets.refuse_exhausted(who)
        kinder = broke("0.01", on_exhausted="downgrade")
        assert not await exhausted(budgets, kinder)
        hold = budgets.hold(kinder, record(kinder), asking(5))
        with pytest.raises(BudgetExhausted, match="Only cached answers and backends that cost nothing"):
            await hold.extend(backend(), 10)
        await hold.extend(backend("free"), 10)
        assert hold.held == 0


async def test_the_tightest_of_several_budgets_decides_and_is_named(state: State) -> None:
    both = [{"limit_usd": "100", "window": "month"}, {"limit_usd": "0.001", "window": "day", "timezone": "Asia/Tokyo"}]
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant(budget=both)
        hold = budgets.hold(who, record(who), asking(500))
        with pytest.raises(BudgetExhausted, match=r"0\.001 USD today \(Asia/Tokyo\).*2026-01-01T15:00:00Z"):
            await hold.extend(backend(), 10)


async def test_a_new_window_begins_with_a_whole_budget(state: State) -> None:
    clock, ledger = Clock(), Ledger()
    async with budgets_on(state, ledger, clock=clock) as budgets:
        who = broke("0.01", window="hour")
        late = budgets.hold(who, record(who), asking(5))
        await late.extend(backend(), 10)
        await spend(budgets, who, 10_000_000)
        assert await exhausted(budgets, who)
        clock.now += 3600
        assert not await exhausted(budgets, who)
        late.settle(9_000_000_000)  # belongs to the hour in which it began
        await spend(budgets, who, 9_000_000, clock.now)
        assert not await exhausted(budgets, who)


async def test_counters_begin_with_what_the_ledger_says(state: State) -> None:
    ledger = Ledger()
    ledger.pico = PICO_PER_USD // 2
    async with budgets_on(state, ledger) as budgets:
        who = broke("0.5")
        assert await exhausted(budgets, who)
        assert ledger.asked == 1


async def test_the_first_requests_of_a_team_share_one_read_of_its_spend(state: State) -> None:
    ledger = Ledger()
    async with budgets_on(state, ledger) as budgets:
        who = broke("1000")
        await asyncio.gather(*(budgets.refuse_exhausted(who) for _ in range(64)))
        assert (ledger.asked, budgets.stats()["leases.rounds"]) == (1, 2)


async def test_budgets_that_were_read_ahead_are_known_to_the_first_request(state: State) -> None:
    ledger = Ledger()
    ledger.pico = PICO_PER_USD // 2
    async with budgets_on(state, ledger) as budgets:
        who, spent = broke("1000"), broke("0.5", on_exhausted="downgrade", window="day")
        await budgets.read_ahead(who)
        rounds = budgets.stats()["leases.rounds"]
        assert not await exhausted(budgets, who)
        assert (ledger.asked, budgets.stats()["leases.rounds"]) == (1, rounds)
        assert await counters(state) == (NANO_PER_USD // 2, 0)
        await budgets.read_ahead(spent)
        (group,) = await budgets.refuse_exhausted(spent)
        assert group.known
        assert ledger.asked == 2


async def test_with_the_common_path_nothing_is_asked_of_the_server(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("1000")
        await asyncio.gather(*(spend(budgets, who, 100) for _ in range(20)))
        await asyncio.sleep(0.15)
        before = budgets.stats()["leases.rounds"]
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await spend(budgets, who, 100)
        await spend(budgets, who, 100)
        assert budgets.stats()["leases.rounds"] == before or loop.time() - begun > 0.04


# ── money under stress ─────────────────────────────────────────────────────────────────────────────────────────────


async def work(budgets: Budgets, who: Tenant, ledger: Ledger, jobs: int, chance: random.Random) -> list[int]:
    """Simultaneous plain and streamed requests of all endings; nano-dollars settled by each that ran."""

    async def one(number: int) -> int:
        await asyncio.sleep(chance.random() * 0.5)
        stream = chance.random() < 0.5
        seen, target = record(who, stream=stream), backend("small")
        spent = 0
        try:
            await budgets.refuse_exhausted(who)
            with released(budgets.hold(who, seen, asking(200, stream=stream))) as hold:
                await hold.extend(target, 100)
                assert hold.held > 0
                output = chance.randrange(1, 200)
                for tokens in range(1, output + 1) if stream else ():
                    if tokens > hold.covers:  # as whoever relays a stream does, chunk by chunk
                        await hold.grow(tokens)
                    if tokens % 20 == 0:
                        await asyncio.sleep(0)
                await asyncio.sleep(chance.random() * 0.05)
                if chance.random() < 0.2:
                    return 0  # cancelled before anything was spent
                spent = close(seen, hold, target, Usage(100, output_tokens=output))
                ledger.pico += spent
        except BudgetExhausted:
            pass
        return spent // 1000

    return await asyncio.gather(*(one(number) for number in range(jobs)))


async def test_many_requests_of_two_workers_never_spend_more_than_the_budget(state: State) -> None:
    ledger, chance = Ledger(), random.Random(7)
    who = broke("0.2")
    async with budgets_on(state, ledger) as one, budgets_on(state, ledger) as two:
        spent = await asyncio.gather(work(one, who, ledger, 150, chance), work(two, who, ledger, 150, chance))
        total = sum(map(sum, spent))
        assert 0.97 * 0.2 * NANO_PER_USD < total <= 0.2 * NANO_PER_USD
    assert await counters(state) == (total, 0)


@pytest.mark.parametrize("harm", ["flush", "kill", "freeze"])
async def test_money_stays_right_when_the_server_is_harmed_in_the_middle(server: EmbeddedServer, harm: str) -> None:
    ledger, chance = Ledger(), random.Random(11)
    who = broke("0.2")

    async def harming() -> None:
        await asyncio.sleep(0.25)
        assert server.pid is not None
        match harm:
            case "flush":
                await first.call("FLUSHALL")
            case "kill":
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(0.2)
                await asyncio.to_thread(server.start)
            case "freeze":
                os.kill(server.pid, signal.SIGSTOP)
                await asyncio.sleep(0.6)
                os.kill(server.pid, signal.SIGCONT)

    async with states(server) as (first, second), budgets_on(first, ledger) as one, budgets_on(second, ledger) as two:
        jobs = [work(one, who, ledger, 150, chance), work(two, who, ledger, 150, chance)]
        *spent, _ = await asyncio.gather(*jobs, harming())
        await up_again(first, second)
        more = await asyncio.gather(work(one, who, ledger, 40, chance), work(two, who, ledger, 40, chance))
        total = sum(sum(found) for found in (*spent, *more))
        assert ledger.pico == total * 1000
        assert total <= 0.2 * NANO_PER_USD
        # What was settled while the ledger was being read may count twice, never not at all.
        await until_settled(first, total, total + (NANO_PER_USD // 20 if harm == "flush" else 0))
    after = State(server.url)
    await after.open()
    assert (await counters(after))[1] == 0
    await after.aclose()


async def test_the_holds_of_a_dead_worker_are_free_once_the_ledger_is_asked(state: State) -> None:
    ledger = Ledger()
    who = broke("0.01")
    dead = Budgets(state, Prices(), ledger, leases=Leases(state, ttl_s=0.3), clock=Clock())
    hold = dead.hold(who, record(who), asking(900))
    await hold.extend(backend(), 10)  # never opened, so nothing refreshes it; then it is gone
    async with budgets_on(state, ledger) as budgets:
        ledger.pico = 500_000 * 1000  # what the writer closed for it
        mine = budgets.hold(who, record(who), asking(900))
        await mine.extend(backend(), 10)
        assert ledger.asked == 3
        mine.settle(0)


async def test_a_ledger_that_cannot_be_read_counts_as_lost_state(state: State) -> None:
    ledger = Ledger()
    ledger.broken = True
    async with budgets_on(state, ledger) as budgets:
        who = broke()
        assert not await exhausted(budgets, who)
        with pytest.raises(BudgetExhausted, match="out of reach"):
            await budgets.hold(who, record(who), asking(9)).extend(backend(), 10)
