from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.admission.budget import BudgetHold, Budgets
from gateway.domain.backend import Backend
from gateway.domain.price import Price
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.domain.units import NANO_PER_USD, PICO_PER_USD
from gateway.domain.usage import Usage
from gateway.errors import BudgetExhausted
from gateway.state.connection import State
from gateway.state.embedded import EmbeddedServer
from gateway.state.leases import Leases
from tests.admission.conftest import PRICES, Prices, backend, record, tenant

JANUARY = 1_767_225_600.0


class Ledger:
    """Implements `Spending`: what was journalled, by team."""

    def __init__(self) -> None:
        self.pico = 0
        self.asked = 0
        self.broken = False

    async def spent_pico(self, team: str, since: float) -> int:
        self.asked += 1
        if self.broken:
            raise OSError("no ledger")
        return self.pico


class Clock:
    def __init__(self, now: float = JANUARY + 3600) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def budgets_on(state: State, ledger: Ledger, **more: Any) -> AsyncIterator[Budgets]:
    leases = Leases(state, period_s=0.05, ttl_s=more.pop("ttl_s", 15.0))
    budgets = Budgets(state, Prices(), ledger, leases=leases, clock=more.pop("clock", Clock()), **more)
    await budgets.open()
    try:
        yield budgets
    finally:
        await budgets.aclose()


def asking(max_output_tokens: int | None = None, *, stream: bool = False, parallel: int = 1) -> CompletionRequest:
    return CompletionRequest(
        id="req_1",
        dialect="openai_chat",
        raw=b"{}",
        body={},
        model="auto",
        turns=[],
        stream=stream,
        max_output_tokens=max_output_tokens,
        temperature=None,
        needs=frozenset(),
        parallel=parallel,
    )


def close(seen: Record, hold: BudgetHold, target: Backend, usage: Usage) -> int:
    """What the pipeline does with a whole answer; pico-dollars."""
    attempt = seen.attempt(target)
    attempt.input_tokens, attempt.usage, attempt.outcome = usage.input_tokens, usage, "ok"
    attempt.cost_pico = price(target).cost(usage)
    cost = sum(one.cost_pico or 0 for one in seen.attempts)
    hold.settle(cost)
    return cost


def price(target: Backend) -> Price:
    return PRICES[target.name]


def broke(limit: str = "1", **more: Any) -> Tenant:
    return tenant(budget={"limit_usd": limit, **more})


async def spend(budgets: Budgets, who: Tenant, nano: int) -> None:
    async with budgets.hold(who, record(who), asking(10)) as hold:
        await hold.extend(backend(), 10)
        hold.settle(nano * 1000)


async def test_without_budgets_everything_passes_and_nothing_is_held(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant()
        assert await budgets.exhausted(who) is None
        async with budgets.hold(who, record(who), asking()) as hold:
            await hold.extend(backend(), 10**9)
            await hold.grow(10**9)
            hold.settle(5)
            assert (hold.held, hold.output_limit) == (0, None)


async def test_a_hold_covers_input_and_the_longest_plain_answer(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        async with budgets.hold(who, record(who), asking(100)) as hold:
            await hold.extend(backend(), 1000)
            assert hold.held >= (1000 * 1 + 100 * 10) * 1000
            assert hold.held < (1300 * 1 + 100 * 10) * 1000
            assert hold.output_limit is None


async def test_leaving_without_settling_releases_the_hold(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.01")
        for _ in range(3):
            async with budgets.hold(who, record(who), asking(900)) as hold:
                await hold.extend(backend(), 10)
        await spend(budgets, who, 9_000_000)
        hold = budgets.hold(who, record(who), asking(900))
        with pytest.raises(BudgetExhausted, match=r"may cost 0\.00\d+ USD .* has 0\.001 USD left"):
            await hold.extend(backend(), 10)


async def test_a_spent_budget_refuses_before_the_cache_or_only_what_costs(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.01")
        assert await budgets.exhausted(who) is None
        await spend(budgets, who, 10_000_000)
        assert await budgets.exhausted(who) is who.policy.budget[0]
        with pytest.raises(BudgetExhausted, match=r"has spent its budget of 0\.01 USD this month"):
            await budgets.refuse_exhausted(who)
        kinder = broke("0.01", on_exhausted="downgrade")
        assert await budgets.exhausted(kinder) is None
        hold = budgets.hold(kinder, record(kinder), asking(5))
        with pytest.raises(BudgetExhausted, match="Only cached answers and backends that cost nothing"):
            await hold.extend(backend(), 10)
        await hold.extend(backend("free"), 10)
        assert hold.held == 0


async def test_an_unpriced_backend_is_noted_and_a_simulated_one_is_not(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        seen = record(who)
        hold = budgets.hold(who, seen, asking(5))
        await hold.extend(backend("house"), 10)
        assert [note["what"] for note in seen.notes] == ["unpriced"]
        await hold.extend(Backend(name="play", kind="simulated", model="plain"), 10)
        assert len(seen.notes) == 1


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
        assert await budgets.exhausted(who)
        clock.now += 3600
        assert await budgets.exhausted(who) is None
        late.settle(9_000_000_000)  # belongs to the hour in which it began
        await spend(budgets, who, 9_000_000)
        assert await budgets.exhausted(who) is None


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
        async with budgets.hold(who, seen, asking(stream=True)) as hold:
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
        async with budgets.hold(who, record(who, stream=True), asking(300, stream=True)) as hold:
            await hold.extend(backend(), 100)
            assert hold.covers == float("inf")


async def test_near_the_end_a_plain_answer_is_capped_at_what_is_held(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.05")
        async with budgets.hold(who, record(who), asking(4000)) as hold:
            await hold.extend(backend(), 10)
            assert hold.output_limit == 512
            assert hold.held < 513 * 10_000 + 20_000


async def test_all_answers_of_a_request_are_held_for(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke()
        async with budgets.hold(who, record(who), asking(100, parallel=5)) as hold:
            await hold.extend(backend(), 10)
            assert hold.held >= 500 * 10_000


async def test_a_request_waits_for_others_to_settle_rather_than_be_refused(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.01")
        async with budgets.hold(who, record(who), asking(900)) as first:
            await first.extend(backend(), 10)
            second = budgets.hold(who, record(who), asking(900))
            waiting = asyncio.ensure_future(second.extend(backend(), 10))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            first.settle(100_000_000)
            await waiting
            second.settle(0)


async def test_patience_ends_with_the_amounts_that_are_in_the_way(state: State) -> None:
    async with budgets_on(state, Ledger(), patience_s=0.1) as budgets:
        who = broke("0.01")
        async with budgets.hold(who, record(who), asking(900)) as first:
            await first.extend(backend(), 10)
            with pytest.raises(BudgetExhausted, match="set aside for requests in progress"):
                await budgets.hold(who, record(who), asking(900)).extend(backend(), 10)


async def test_counters_begin_with_what_the_ledger_says(state: State) -> None:
    ledger = Ledger()
    ledger.pico = PICO_PER_USD // 2
    async with budgets_on(state, ledger) as budgets:
        who = broke("0.5")
        assert await budgets.exhausted(who)
        assert ledger.asked == 1


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
            async with budgets.hold(who, seen, asking(200, stream=stream)) as hold:
                await hold.extend(target, 100)
                assert hold.held > 0
                output = chance.randrange(1, 200)
                for tokens in range(0, output, 20) if stream else ():
                    await hold.grow(tokens)
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


async def counters(state: State) -> tuple[int, int]:
    """Settled and leased nano-dollars of the one sum in the namespace."""
    keys = await state.call("KEYS", state.key("lease", "budget", "*", tag="search"))
    settled, workers = await state.call("HMGET", keys[0], "s", "w")
    return int(settled), sum(int(entry.split("=")[1]) for entry in workers.decode().split(";") if entry)


async def test_many_requests_of_two_workers_never_spend_more_than_the_budget(state: State) -> None:
    ledger, chance = Ledger(), random.Random(7)
    who = broke("0.2")
    async with budgets_on(state, ledger) as one, budgets_on(state, ledger) as two:
        spent = await asyncio.gather(work(one, who, ledger, 150, chance), work(two, who, ledger, 150, chance))
        total = sum(map(sum, spent))
        assert 0.97 * 0.2 * NANO_PER_USD < total <= 0.2 * NANO_PER_USD
    assert await counters(state) == (total, 0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(tmp_path)
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def states(server: EmbeddedServer) -> AsyncIterator[tuple[State, State]]:
    one, two = State(server.url), State(server.url)
    await one.open()
    await two.open()
    yield one, two
    await one.aclose()
    await two.aclose()


async def up_again(*some: State) -> None:
    for _ in range(200):
        if all(state.healthy for state in some):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("state never came back")


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
        await asyncio.sleep(0.3)
        settled, _ = await counters(first)
        # What was settled while the ledger was being read may count twice, never not at all.
        assert total <= settled <= total + (0.05 * NANO_PER_USD if harm == "flush" else 0)
    after = State(server.url)
    await after.open()
    assert (await counters(after))[1] == 0
    await after.aclose()


async def test_without_the_server_the_lease_pays_and_then_the_rule_decides(server: EmbeddedServer) -> None:
    async with states(server) as (first, second), budgets_on(first, Ledger()) as budgets:
        who = broke("1000")
        await asyncio.gather(*(spend(budgets, who, 100) for _ in range(30)))
        await asyncio.sleep(0.1)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await spend(budgets, who, 100)  # from the lease
            hold = budgets.hold(who, record(who), asking(100_000))
            with pytest.raises(BudgetExhausted, match=r"counters are out of reach.*on_state_loss: allow"):
                await hold.extend(backend("large"), 10**6)
            kinder = broke("1000", on_state_loss="allow")
            seen = record(kinder)
            async with budgets.hold(kinder, seen, asking(100_000)) as hold:
                await hold.extend(backend("large"), 10**6)
                assert hold.held > 0
                hold.settle(7_000_000)
            assert seen.degraded == {"state"}
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await up_again(first, second)
        await asyncio.sleep(0.3)
        assert (await counters(first))[0] == 31 * 100 + 7000


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
        assert ledger.asked == 2
        mine.settle(0)


async def test_a_ledger_that_cannot_be_read_counts_as_lost_state(state: State) -> None:
    ledger = Ledger()
    ledger.broken = True
    async with budgets_on(state, ledger) as budgets:
        who = broke()
        assert await budgets.exhausted(who) is None
        with pytest.raises(BudgetExhausted, match="out of reach"):
            await budgets.hold(who, record(who), asking(9)).extend(backend(), 10)
