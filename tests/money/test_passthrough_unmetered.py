"""What is passed through and answered without usage is booked by what is known, and no hard budget is overrun by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.dialects.clients import PATHS
from gateway.domain.record import new_request_id
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BudgetExhausted
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import INPUT, OUTPUT, InProcessGateway, open_gateway, tenant
from tests.money.reporting import plain_reply

TEXT = "word " * 3000
SPEECH = ("/v1/audio/speech", {"input": TEXT, "voice": "a"})
SCORES = [("/v1/moderations", {"input": [TEXT]}), ("/v1/rerank", {"query": "q", "documents": [TEXT]})]


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path) as opened:
        yield opened


def request_for(path: str, fields: dict[str, Any]) -> CompletionRequest:
    body = orjson.dumps({"model": "small", **fields})
    return PATHS[path].parse(body, new_request_id(), Controls(), {})


def team(usd: str, **budget: Any) -> Any:
    return tenant(cache={"enabled": False}, budget={"limit_usd": usd, **budget})


BUDGETS = pytest.mark.parametrize("budget", [{}, {"on_exhausted": "finish"}, {"on_unpriced": "allow"}])


@BUDGETS
@pytest.mark.parametrize(("path", "fields"), SCORES)
async def test_scores_cost_the_text_that_was_sent(
    gateway: InProcessGateway, path: str, fields: dict[str, Any], budget: dict[str, Any]
) -> None:
    gateway.provider.script(plain_reply({"results": []}))
    await gateway.read(request_for(path, fields), team("5", **budget))
    (row,) = await gateway.rows()
    assert row["estimated"]
    assert row["input_tokens"] >= 3000
    assert row["cost_pico"] == row["input_tokens"] * INPUT


@BUDGETS
async def test_speech_costs_at_most_what_was_held_for_it(gateway: InProcessGateway, budget: dict[str, Any]) -> None:
    gateway.provider.script(plain_reply({"sound": ""}))
    await gateway.read(request_for(*SPEECH), team("5", **budget))
    (row,) = await gateway.rows()
    assert row["estimated"]
    assert (row["input_tokens"] >= 3000, row["output_tokens"]) == (True, 8000)  # of one window
    assert row["cost_pico"] == row["input_tokens"] * INPUT + row["output_tokens"] * OUTPUT


@pytest.mark.parametrize(("path", "fields"), [SPEECH, *SCORES])
async def test_a_hard_budget_ends_it(gateway: InProcessGateway, path: str, fields: dict[str, Any]) -> None:
    gateway.provider.script(*[plain_reply({"results": []}) for _ in range(200)])
    who = team("0.1")
    said = await asyncio.gather(
        *(gateway.read(request_for(path, fields), who) for _ in range(40)), return_exceptions=True
    )
    assert any(isinstance(each, BudgetExhausted) for each in said)
    rows = await gateway.rows()
    assert rows
    assert 0 < sum(row["cost_pico"] for row in rows) <= 10**11
