"""Reasoning that nobody saw is billed by time where its answer ended early, once the backend's pace is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, open_gateway
from tests.fakes.provider import Raw
from tests.money.reporting import (
    DONE,
    NO_CACHE,
    PRICE,
    STREAM,
    chunk,
    completion,
    cost_of,
    plain_reply,
    request_for,
    row_of,
)
from tests.support.waiting import until

PATH = "/v1/chat/completions"
USAGE = {"prompt_tokens": 10, "completion_tokens": 1001, "completion_tokens_details": {"reasoning_tokens": 1000}}


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    fields: dict[str, Any] = {"price": PRICE, "capabilities": ["reasoning"], "max_output_tokens": 5000}
    async with open_gateway(state, database, tmp_path, **fields) as opened:
        yield opened


def thinking(pause_s: float) -> Raw:
    whole = chunk({"content": "word"}) + chunk({}, "stop") + chunk(None, usage=USAGE) + DONE
    return Raw((STREAM + chunk({"role": "assistant", "content": ""}), pause_s, whole), then="fin")


@pytest.mark.parametrize("how", ["hang up", "cut"])
async def test_a_stream_that_ends_while_it_reasons_is_billed_for_the_silence(
    gateway: InProcessGateway, how: str
) -> None:
    gateway.provider.script(thinking(0.1))
    await gateway.read(request_for(PATH), NO_CACHE)
    begun = STREAM + chunk({"role": "assistant", "content": ""})
    gateway.provider.script(Raw((begun, 0.3), then="fin") if how == "cut" else Raw((begun, 30.0)))
    if how == "cut":
        with pytest.raises(GatewayError):
            await gateway.read(request_for(PATH), NO_CACHE)
    else:
        reading = asyncio.ensure_future(gateway.read(request_for(PATH), NO_CACHE))
        await until(lambda: bool(gateway.record.attempts) and gateway.record.attempts[0].output_bytes)
        await asyncio.sleep(0.3)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    row = await row_of(gateway)
    assert (row["outcome"], row["estimated"]) == ("interrupted", True)
    assert 50 <= row["reasoning_tokens"] <= 5000  # some 3,000 at the pace that was seen; fewer if the machine was busy


async def test_a_stream_that_ends_after_its_first_text_is_billed_for_the_silence_before_it(
    gateway: InProcessGateway,
) -> None:
    gateway.provider.script(thinking(0.1))
    await gateway.read(request_for(PATH), NO_CACHE)
    pieces = (STREAM + chunk({"role": "assistant", "content": ""}), 0.1, chunk({"content": "word"}), 0.02)
    gateway.provider.script(Raw(pieces, then="fin"))
    with pytest.raises(GatewayError):
        await gateway.read(request_for(PATH), NO_CACHE)
    row = await row_of(gateway)
    assert row["output_tokens"] >= 1
    assert 100 <= row["reasoning_tokens"] <= 5000


async def test_before_the_pace_is_known_nothing_is_made_up(gateway: InProcessGateway) -> None:
    gateway.provider.script(Raw((STREAM + chunk({"role": "assistant", "content": ""}), 0.1), then="fin"))
    with pytest.raises(GatewayError):
        await gateway.read(request_for(PATH), NO_CACHE)
    assert (await row_of(gateway))["reasoning_tokens"] == 0


async def left(gateway: InProcessGateway, within_s: float, **fields: Any) -> dict[str, Any]:
    """The row of a plain answer whose client left while the backend was still at work on it."""
    gateway.provider.script(Raw((30.0,)))
    before = len(gateway.provider.exchanges)
    reading = asyncio.ensure_future(gateway.read(request_for(PATH, stream=False, **fields), NO_CACHE))
    await until(lambda: len(gateway.provider.exchanges) > before)
    await asyncio.sleep(within_s)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    return await row_of(gateway)


async def answered(gateway: InProcessGateway, after_s: float) -> None:
    """A plain answer of some thousand tokens teaches the backend's pace."""
    gateway.provider.script(Raw((after_s, *plain_reply(completion("word " * 1000, USAGE)).pieces)))
    await gateway.read(request_for(PATH, stream=False), NO_CACHE)


async def test_a_plain_answer_whose_client_leaves_is_billed_for_the_time_it_took(gateway: InProcessGateway) -> None:
    await answered(gateway, 0.2)
    row = await left(gateway, 0.8)
    assert (row["outcome"], row["estimated"], row["cost_pico"]) == ("interrupted", True, cost_of(row))
    assert 1000 <= row["output_tokens"] <= 5000  # some 4,000 at the pace that was seen; fewer if the machine was busy


@pytest.mark.parametrize(
    ("fields", "most"),
    [({"max_tokens": 50}, 50), ({"max_tokens": 50, "n": 2}, 100), ({}, 5000), ({"n": 2}, 10_000)],
    ids=str,
)
async def test_a_plain_answer_whose_client_leaves_is_billed_for_no_more_than_it_could_have_been(
    gateway: InProcessGateway, fields: dict[str, Any], most: int
) -> None:
    await answered(gateway, 0.005)
    row = await left(gateway, 2.0, **fields)
    assert (row["output_tokens"], row["estimated"], row["cost_pico"]) == (most, True, cost_of(row))


async def test_a_plain_answer_whose_client_leaves_is_billed_for_no_more_than_the_window_holds(
    state: State, database: Database, tmp_path: Path
) -> None:
    async with open_gateway(state, database, tmp_path, price=PRICE, window_tokens=2000) as gateway:
        await answered(gateway, 0.005)
        row = await left(gateway, 0.5)
    assert 1800 <= row["output_tokens"] < 2000


async def test_a_plain_answer_whose_client_leaves_before_the_pace_is_known_is_billed_for_its_input(
    gateway: InProcessGateway,
) -> None:
    row = await left(gateway, 0.1)
    assert (row["outcome"], row["output_tokens"], row["estimated"]) == ("interrupted", 0, True)
    assert row["input_tokens"] > 0
