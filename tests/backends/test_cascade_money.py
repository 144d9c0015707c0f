"""Strategies through the whole pipeline: real holds on real counters, and what the ledger says in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.record import Record
from gateway.domain.routing.route import Route
from gateway.errors import BudgetExhausted
from gateway.routing.router import Router
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.backends.strategies import route_of
from tests.fakes.gateway import INPUT, OUTPUT, InProcessGateway, backend, open_gateway, tenant
from tests.fakes.provider import Reply
from tests.support.pieces import with_ending
from tests.support.requests import small_request
from tests.support.waiting import until


class Decided(Router):
    """Takes one decision, whatever the request."""

    def __init__(self, route: Route) -> None:
        self.decision = route

    async def route(self, *args: Any) -> Route:
        return replace(self.decision)

    def learn(self, record: Record) -> None:
        """There is nothing to learn for."""


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    """Whose router has three backends asked, one after the other, until two agree."""
    async with open_gateway(
        state, database, tmp_path, more=lambda provider: tuple(backend(provider, name) for name in ("second", "third"))
    ) as opened:
        opened.pipeline.router = Decided(route_of(*opened.fleet.backends))
        yield opened


def spent(row: dict[str, Any]) -> int:
    return int(row["input_tokens"] * INPUT + row["output_tokens"] * OUTPUT)


@pytest.mark.parametrize("stream", [False, True])
async def test_every_attempt_has_one_row_with_what_became_of_it(gateway: InProcessGateway, stream: bool) -> None:
    gateway.provider.script(Reply(text="7"), Reply(text="Well, it is 8."), Reply(text="8, says the third"))
    data = await gateway.read(small_request(stream=stream), tenant(cache={"enabled": False}))
    rows = await gateway.rows()
    assert [(row["backend"], row["attempt"], row["outcome"], row["kind"], row["escalated"]) for row in rows] == [
        ("small", 1, "escalated", "", True),
        ("second", 2, "escalated" if stream else "ok", "", True),
        ("third", 3, "ok" if stream else "escalated", "", True),
    ]
    assert [row["output_tokens"] for row in rows] == [1, 4, 4]
    assert not any(row["estimated"] for row in rows)
    assert sum(row["cost_pico"] for row in rows) == sum(map(spent, rows)) == gateway.record.cost_pico
    assert (b"third" in data) is stream  # the last of a stream's is not kept back: it says what the second said
    assert gateway.quiet()


async def test_a_hard_budget_holds_midway_and_the_best_so_far_is_served(gateway: InProcessGateway) -> None:
    gateway.provider.script(Reply(text="7"), Reply(text="Well, it is 8."))
    limit = 2 * (100 * OUTPUT + 60 * INPUT)  # enough for two answers of at most 100 tokens, not for the third
    who = tenant(cache={"enabled": False}, budget={"limit_usd": Decimal(limit) / 10**12})
    data = await gateway.read(small_request(max_tokens=100), who)
    assert b"Well, it is 8." in data
    rows = await gateway.rows()
    assert [(row["backend"], row["outcome"]) for row in rows] == [("small", "escalated"), ("second", "ok")]
    assert gateway.record.notes[-1]["why"] == BudgetExhausted.code
    assert sum(row["cost_pico"] for row in rows) == gateway.record.cost_pico
    assert (gateway.record.cost_pico or 0) < limit
    assert len(gateway.provider.exchanges) == 2


async def test_a_long_stream_that_was_compared_is_paid_for_as_it_grew(gateway: InProcessGateway) -> None:
    long = " ".join(f"word{number}" for number in range(900)) + "\n#### 7"
    gateway.provider.script(Reply(text=long), Reply(text=long))
    who = tenant(cache={"enabled": False}, budget={"limit_usd": 1})
    data = await gateway.read(small_request(stream=True), who)
    rows = await gateway.rows()
    assert data.count(b"data: ") > 900
    assert {row["outcome"] for row in rows} == {"ok", "escalated"}
    assert sum(row["cost_pico"] for row in rows) == gateway.record.cost_pico
    assert gateway.notes.count("settled") == 1


async def test_a_client_that_leaves_midway_pays_for_what_was_asked(gateway: InProcessGateway) -> None:
    gateway.provider.script(Reply(text="7"), Reply(text="7", prefill_s=30))
    asking = asyncio.get_running_loop().create_task(gateway.read(small_request(), tenant(cache={"enabled": False})))
    await until(lambda: len(gateway.provider.exchanges) == 2)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    rows = await gateway.rows()
    assert [(row["backend"], row["outcome"]) for row in rows] == [("small", "escalated"), ("second", "interrupted")]
    assert [row["estimated"] for row in rows] == [False, True]
    assert sum(row["cost_pico"] for row in rows) == gateway.record.cost_pico
    assert gateway.quiet()


async def test_a_hedge_is_paid_for_beside_the_winner_and_marked(gateway: InProcessGateway) -> None:
    gateway.pipeline.router = Decided(Route(gateway.fleet.backends, "test"))
    gateway.provider.default = Reply(delay_s=0.1)
    warm = tenant(cache={"enabled": False})
    await asyncio.gather(*(_read(gateway, warm, number) for number in range(20)))
    before = len(await gateway.rows())
    gateway.provider.default = Reply(tokens=600, delay_s=0.5)
    gateway.provider.script(Reply(tokens=600, delay_s=0.6), Reply(delay_s=30))
    who = tenant(cache={"enabled": False}, budget={"limit_usd": 1}, hedging={"enabled": True, "share": "100%"})
    data = await gateway.read(small_request(stream=True), who)
    assert data.count(b"data: ") > 600
    rows = (await gateway.rows())[before:]
    assert [(row["backend"], row["outcome"], row["kind"]) for row in rows] == [
        ("small", "ok", ""),
        ("second", "interrupted", "hedge"),
    ]
    assert rows[1]["cost_pico"] == rows[1]["input_tokens"] * INPUT > 0
    assert sum(row["cost_pico"] for row in rows) == gateway.record.cost_pico
    await until(lambda: gateway.provider.last.hung_up)
    assert gateway.quiet()


async def _read(gateway: InProcessGateway, who: Any, number: int) -> None:
    request = small_request(f"warm {number}", stream=True)
    record = Record(request.id, who, request.model, request.dialect, request.stream)
    deadline = asyncio.get_running_loop().time() + 5
    async with await gateway.pipeline.serve(request, who, record, deadline) as reply:
        async for _ in with_ending(reply):
            pass
