"""`max_usd_per_request` of a policy."""

from __future__ import annotations

import pytest

from gateway.errors import BudgetExhausted
from gateway.state.redis.connection import State
from tests.admission.conftest import Ledger, asking, backend, budgets_on, record, released, tenant


async def test_a_request_that_may_cost_more_is_refused_and_a_cheaper_backend_serves(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant(max_usd_per_request="0.001")
        with released(budgets.hold(who, record(who), asking(10))) as hold:
            with pytest.raises(BudgetExhausted, match=r"max_usd_per_request: 0\.001 in the policy of team") as caught:
                await hold.extend(backend(), 10**6)
            assert caught.value.retry_after_s is None
            await hold.extend(backend("free"), 10**6)


async def test_an_answer_of_text_is_capped_at_what_the_limit_pays_for(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant(max_usd_per_request="0.01")
        with released(budgets.hold(who, record(who), asking(None))) as hold:
            await hold.extend(backend(), 10)
            assert hold.output_limit is not None
            assert hold.held <= 10_000_000


async def test_it_stands_beside_budgets_and_each_request_has_it_anew(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant(max_usd_per_request="0.001", budget=[{"limit_usd": "100"}])
        for _ in range(3):
            with released(budgets.hold(who, record(who), asking(10))) as hold:
                await hold.extend(backend(), 10)
                hold.settle(900_000_000)


async def test_what_has_no_known_price_is_refused(state: State) -> None:
    async with budgets_on(state, Ledger()) as budgets:
        who = tenant(max_usd_per_request="1")
        hold = budgets.hold(who, record(who), asking(10))
        with released(hold), pytest.raises(BudgetExhausted, match="is unknown, so max_usd_per_request: 1 "):
            await hold.extend(backend("unpriced"), 10)
