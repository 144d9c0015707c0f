from __future__ import annotations

import asyncio
import os
import signal

import pytest

from gateway.errors import BudgetExhausted
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from tests.admission.conftest import (
    Ledger,
    asking,
    backend,
    broke,
    budgets_on,
    record,
    released,
    spend,
    states,
    until_settled,
    up_again,
)


async def test_a_request_waits_for_others_to_settle_rather_than_be_refused(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = broke("0.01")
        with released(budgets.hold(who, record(who), asking(900))) as first:
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
        with released(budgets.hold(who, record(who), asking(900))) as first:
            await first.extend(backend(), 10)
            with pytest.raises(BudgetExhausted, match="set aside for requests in progress"):
                await budgets.hold(who, record(who), asking(900)).extend(backend(), 10)


async def test_without_the_server_the_lease_pays_and_then_the_rule_decides(server: EmbeddedServer) -> None:
    async with states(server) as (first, second), budgets_on(first, Ledger()) as budgets:
        who = broke("1000")
        await asyncio.gather(*(spend(budgets, who, 100) for _ in range(30)))
        await until_settled(first, 30 * 100)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await spend(budgets, who, 100)  # from the lease
            hold = budgets.hold(who, record(who), asking(100_000))
            with pytest.raises(BudgetExhausted, match=r"counters are out of reach.*on_state_loss: allow"):
                await hold.extend(backend("large"), 10**6)
            kinder = broke("1000", on_state_loss="allow")
            seen = record(kinder)
            with released(budgets.hold(kinder, seen, asking(100_000))) as hold:
                await hold.extend(backend("large"), 10**6)
                assert hold.held > 0
                hold.settle(7_000_000)
            assert seen.degraded == {"state"}
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await up_again(first, second)
        await until_settled(first, 31 * 100 + 7000)
