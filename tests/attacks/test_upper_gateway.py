"""What a gateway upstream says about money: it may be of another version, in trouble, or in strange hands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from gateway.errors import AllBackendsFailed
from gateway.ledger.rows import MOST_PICO
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import INPUT, OUTPUT, InProcessGateway, open_gateway, tenant
from tests.fakes.provider import Raw
from tests.support.requests import small_request

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
OWN = 10 * INPUT + 5 * OUTPUT


@pytest_asyncio.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, kind="thriftgate") as opened:
        yield opened


def answer(*headers: str, finish: str = "stop", stream: bool = False) -> Raw:
    if stream:
        chunks: list[Any] = [
            {"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            {"choices": [], "usage": USAGE},
        ]
        kind, body = "text/event-stream", b"".join(b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks)
        body += b"data: [DONE]\n\n"
    else:
        kind = "application/json"
        choice = {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": finish}
        body = orjson.dumps({"object": "chat.completion", "choices": [choice], "usage": USAGE})
    head = "\r\n".join(["HTTP/1.1 200 OK", f"content-type: {kind}", f"content-length: {len(body)}", *headers])
    return Raw((head.encode("latin-1") + b"\r\n\r\n" + body,))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("header", "cost"),
    [
        ("x-thriftgate-cost-usd: 0.5", 5 * 10**11),
        ("x-thriftgate-cost-usd: 999999999", MOST_PICO),
        ("x-thriftgate-price: input=7 output=11", 10 * 7 + 5 * 11),
        ("x-thriftgate-price: input=999999999999999999 output=999999999999999999", MOST_PICO),
        *(
            (f"x-thriftgate-cost-usd: {text}", OWN)
            for text in ("-1", "NaN", "1e9", "Infinity", "", "+1", "0x1", "1_0", "1.", "\xb2", "9" * 30)
        ),
        *(
            (f"x-thriftgate-price: {text}", OWN)
            for text in (
                "input=1",
                "input=-1 output=2",
                "input=1 output=2 beyond=5",
                "input=1 output=2 tiers=5",
                "input=1 output=2 choosable=1",
                "input=1 output=2 as_of=1",
                "input=1 output=2 every_tier=1",
                "input=1 output=2 unknown=1",
                "input=1output=2",
            )
        ),
    ],
)
async def test_every_answer_is_booked_once_whatever_the_upper_gateway_says(
    gateway: InProcessGateway, header: str, cost: int, stream: bool
) -> None:
    gateway.provider.script(answer(header, stream=stream))
    await gateway.read(small_request(stream=stream), tenant(cache={"enabled": False}))
    (row,) = await gateway.rows()
    assert (row["outcome"], row["input_tokens"], row["output_tokens"], row["cost_pico"]) == ("ok", 10, 5, cost)
    assert (row["price_source"] == "upstream gateway") == (cost != OWN)
    assert gateway.quiet()


EXACT: dict[str, Any] = {"cache": {"semantic": {"enabled": False}}}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_a_budget_of_the_upper_gateway_cut_short_is_not_kept(
    gateway: InProcessGateway, stream: bool
) -> None:
    gateway.provider.script(
        answer("x-thriftgate-output-cap: 16", finish="length", stream=stream),
        answer(finish="length", stream=stream),
    )
    for entries in (0, 1):
        await gateway.read(small_request(stream=stream), tenant(**EXACT))
        assert (gateway.record.cache, gateway.record.finish) == ("miss", "length")
        assert gateway.pipeline.cache.stats()["entries"] == entries


async def test_a_request_too_dear_for_the_upper_gateway_does_not_stop_others(gateway: InProcessGateway) -> None:
    """The upper gateway's budget covers small requests still; who asks for a large one must not rest it for all."""
    error = orjson.dumps({"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "too dear"}})
    head = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 86400\r\n"
    gateway.provider.script(Raw((head + b"content-length: %d\r\n\r\n" % len(error) + error,)), answer())
    with pytest.raises(AllBackendsFailed) as refused:
        await gateway.read(small_request("a large one"), tenant(**EXACT))
    assert (refused.value.status, refused.value.code) == (429, "insufficient_quota")
    (upper,) = gateway.fleet.backends
    assert gateway.fleet.state(upper).available
    await gateway.read(small_request("a small one"), tenant("key_2", "other", **EXACT))
    assert gateway.record.status == 200
