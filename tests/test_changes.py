"""What changes between two requests of one key counts for the second request, whatever the first one has resolved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.backend import PriceEntry
from gateway.domain.policy import Policy
from gateway.domain.tenant import Key, Tenant
from gateway.errors import AllBackendsFailed, BudgetExhausted, Forbidden, LimitExceeded, UnknownModel
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, catalogue, open_gateway, tenant
from tests.fakes.provider import Fail
from tests.support.requests import small_request

UNCACHED: dict[str, Any] = {"cache": {"enabled": False}}


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path) as opened:
        await opened.read(small_request(), tenant(**UNCACHED))
        yield opened


async def test_a_lower_rate_limit_counts_at_once(gateway: InProcessGateway) -> None:
    await gateway.read(small_request(), tenant(limits={"requests_per_minute": 100}, **UNCACHED))
    with pytest.raises(LimitExceeded):
        await gateway.read(small_request(), tenant(limits={"requests_per_minute": 1}, **UNCACHED))
    assert gateway.record.ratelimit[b"x-ratelimit-limit-requests"] == b"1"


async def test_a_model_that_was_taken_away_is_not_served(gateway: InProcessGateway) -> None:
    who = tenant(models={"mine": "small"}, **UNCACHED)
    await gateway.read(small_request(model="mine"), who)
    with pytest.raises(UnknownModel):
        await gateway.read(small_request(model="mine"), tenant(**UNCACHED))
    with pytest.raises(Forbidden):
        await gateway.read(small_request(), tenant(allowed_models=["other"], **UNCACHED))
    key = Key("key_1", "search", allowed_models=frozenset({"other"}))
    with pytest.raises(Forbidden):
        await gateway.read(small_request(), Tenant(key, who.policy, "e1"))


async def test_an_answer_from_before_a_change_of_the_policy_is_not_reused(gateway: InProcessGateway) -> None:
    await gateway.read(small_request(), tenant())
    await gateway.read(small_request(), tenant())
    assert gateway.record.cache == "exact"
    await gateway.read(small_request(), Tenant(Key("key_1", "search"), Policy(team="search"), "e2"))
    assert gateway.record.cache == "miss"


async def test_a_budget_that_was_lowered_below_the_spend_refuses(gateway: InProcessGateway) -> None:
    def limited(usd: str) -> Tenant:
        return tenant(budget={"limit_usd": usd, "window": "day", "on_exhausted": "refuse"}, **UNCACHED)

    await gateway.read(small_request(), limited("5"))
    await gateway.writer.drain_once()
    with pytest.raises(BudgetExhausted):
        await gateway.read(small_request(), limited("0.000001"))


async def test_a_new_price_is_booked_and_one_that_was_measured_too(
    state: State, database: Database, tmp_path: Path
) -> None:
    price = PriceEntry(machine_hour_usd=Decimal(4))
    async with open_gateway(state, database, tmp_path, price=price) as gateway:
        await gateway.read(small_request(), tenant(**UNCACHED))
        (await asyncio.to_thread(catalogue)).learn({"small": Decimal(10)})
        await gateway.read(small_request(), tenant(**UNCACHED))
        first, second = await gateway.rows()
    assert second["cost_pico"] > 2 * first["cost_pico"] > 0
    assert second["prices"] != first["prices"]


async def test_a_backend_that_keeps_failing_is_left_alone_at_once(gateway: InProcessGateway) -> None:
    gateway.provider.script(*[Fail(500)] * 10)
    for _ in range(5):
        with pytest.raises(AllBackendsFailed):
            await gateway.read(small_request(), tenant(**UNCACHED))
    reason = gateway.fleet.state(gateway.fleet.backends[0]).reason
    assert reason == "unavailable after failures"
