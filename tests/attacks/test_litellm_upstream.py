"""A LiteLLM proxy upstream: each answer is booked once, at the proxy's cost, or else at this gateway's price.

The headers are those of a real proxy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from gateway.errors import AllBackendsFailed
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.attacks.test_upper_gateway import OWN, answer
from tests.fakes.gateway import InProcessGateway, open_gateway, tenant
from tests.fakes.litellm_proxy import BUDGET, RECORDED
from tests.fakes.provider import Raw
from tests.support.requests import small_request

PLAIN = {"cache": {"enabled": False}}


@pytest_asyncio.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, kind="litellm_proxy") as opened:
        yield opened


@pytest.mark.parametrize(
    ("recorded", "stream", "cost", "told"),
    [
        ("plain", False, 45_000_000, True),
        ("cached", False, 0, True),
        ("stream", True, OWN, False),
        ("cachedstream", True, 0, True),
        ("unknown", False, OWN, False),
    ],
)
async def test_an_answer_is_booked_once_by_what_a_real_proxy_tells(
    gateway: InProcessGateway, recorded: str, stream: bool, cost: int, told: bool
) -> None:
    gateway.provider.script(answer(*RECORDED[recorded], stream=stream))
    await gateway.read(small_request(stream=stream), tenant(**PLAIN))
    (row,) = await gateway.rows()
    assert (row["outcome"], row["input_tokens"], row["output_tokens"], row["cost_pico"]) == ("ok", 10, 5, cost)
    assert (row["price_source"] == "upstream gateway") is told
    assert gateway.quiet()


@pytest.mark.parametrize(
    ("headers", "cost"),
    [
        (["x-litellm-response-cost: 0.25"], 25 * 10**10),
        (["x-litellm-response-cost: 4.500000000000001e-05"], 45_000_000),
        (["x-litellm-response-cost: 1e-12"], 1),
        (["x-litellm-response-cost: 0.0"], OWN),
        (["x-litellm-response-cost: 0"], OWN),
        (["x-litellm-response-cost: 0.0", "x-litellm-cache-key: k"], 0),
        (["x-litellm-response-cost: 0.25", "x-litellm-cache-key: k"], 25 * 10**10),
        (["x-litellm-response-cost-original: 0.5"], OWN),
        (["x-thriftgate-cost-usd: 0.5"], OWN),
        (["x-thriftgate-price: input=1 output=1"], OWN),
        *(
            ([f"x-litellm-response-cost: {text}"], OWN)
            for text in ("-1", "NaN", "inf", "None", "1e9", "1e-999", "", "+1", "0x1", "1_0", "1.", "\xb2", "9" * 30)
        ),
    ],
)
async def test_a_cost_that_cannot_be_believed_is_computed_here(
    gateway: InProcessGateway, headers: list[str], cost: int
) -> None:
    gateway.provider.script(answer(*headers))
    await gateway.read(small_request(), tenant(**PLAIN))
    (row,) = await gateway.rows()
    assert (row["outcome"], row["cost_pico"]) == ("ok", cost)


@pytest.mark.parametrize("status", [400, 422, 429])
async def test_a_spent_budget_of_the_proxys_key_is_the_operators_and_not_shown(
    gateway: InProcessGateway, status: int
) -> None:
    body = orjson.dumps(BUDGET)
    head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    gateway.provider.script(Raw((head.encode() + body,)))
    with pytest.raises(AllBackendsFailed) as refused:
        await gateway.read(small_request(), tenant(**PLAIN))
    assert (refused.value.status, refused.value.code) == (429, "insufficient_quota")
    assert "Current cost" not in str(refused.value)
    (row,) = await gateway.rows()
    assert (row["outcome"], row["cost_pico"]) == ("failed", 0)
