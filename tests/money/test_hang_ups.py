"""An answer whose client leaves is billed by time, at its backend's pace, and never for more than it could have."""

from __future__ import annotations

import asyncio
import re
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


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, price=PRICE, window_tokens=8000) as opened:
        yield opened


async def paced(gateway: InProcessGateway, tokens: int, pause_s: float) -> None:
    """Let the backend write `tokens` in about `pause_s`."""
    usage = {"prompt_tokens": 10, "completion_tokens": tokens}
    (whole,) = plain_reply(completion("word " * tokens, usage)).pieces
    gateway.provider.script(Raw((pause_s, whole)))
    await gateway.read(request_for(PATH, stream=False), NO_CACHE)


async def left_after(gateway: InProcessGateway, seconds: float, **fields: Any) -> dict[str, Any]:
    """The row of an answer whose client leaves before any of it came."""
    gateway.provider.script(Raw((), then="hang"))
    before = len(gateway.provider.exchanges)
    reading = asyncio.ensure_future(gateway.read(request_for(PATH, stream=False, **fields), NO_CACHE))
    await until(lambda: len(gateway.provider.exchanges) > before)
    await asyncio.sleep(seconds)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    return await row_of(gateway)


async def test_a_plain_answer_whose_client_leaves_is_billed_by_time_at_the_learned_pace(
    gateway: InProcessGateway,
) -> None:
    await paced(gateway, 400, 0.2)
    rate = 400 / 0.2
    began = asyncio.get_running_loop().time()
    row = await left_after(gateway, 0.5)
    took = asyncio.get_running_loop().time() - began
    assert (row["outcome"], row["estimated"], row["cost_pico"]) == ("interrupted", True, cost_of(row))
    assert 0.2 * rate * 0.5 <= row["output_tokens"] <= rate * took * 1.05
    assert row["input_tokens"] > 0


async def test_before_the_pace_of_plain_answers_is_known_only_the_input_is_billed(gateway: InProcessGateway) -> None:
    row = await left_after(gateway, 0.1)
    assert (row["outcome"], row["estimated"], row["output_tokens"]) == ("interrupted", True, 0)


MOST = pytest.mark.parametrize(
    ("fields", "most"), [({"max_tokens": 30}, 30), ({"max_tokens": 30, "n": 3}, 90), ({}, 8000)]
)


@MOST
async def test_a_plain_answer_that_nobody_waited_for_is_billed_for_no_more_than_it_could_have_had(
    gateway: InProcessGateway, fields: dict[str, Any], most: int
) -> None:
    await paced(gateway, 4000, 0.02)
    row = await left_after(gateway, 0.5, **fields)
    assert most - row["input_tokens"] <= row["output_tokens"] <= most
    if not fields:
        assert row["input_tokens"] + row["output_tokens"] <= 8000


@MOST
async def test_a_call_that_its_worker_did_not_survive_is_journalled_with_the_most_it_could_have_had(
    gateway: InProcessGateway, tmp_path: Path, fields: dict[str, Any], most: int
) -> None:
    gateway.provider.script(Raw((), then="hang"))
    reading = asyncio.ensure_future(gateway.read(request_for(PATH, stream=False, **fields), NO_CACHE))
    await until(lambda: len(gateway.provider.exchanges) == 1)
    await until(
        lambda: any(b'"cap":' in path.read_bytes() for path in (tmp_path / "journal").rglob("*") if path.is_file())
    )
    lines = [path.read_bytes() for path in (tmp_path / "journal").rglob("*") if path.is_file()]
    (cap,) = [int(found) for line in lines for found in re.findall(rb'"cap":(\d+)', line)]
    assert most - gateway.record.attempts[0].input_tokens <= cap <= most
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_a_stream_that_ends_after_a_long_silence_is_billed_for_no_more_than_was_asked_for(
    state: State, database: Database, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"price": PRICE, "capabilities": ["reasoning"], "max_output_tokens": 5000}
    usage = {"prompt_tokens": 9, "completion_tokens": 1001, "completion_tokens_details": {"reasoning_tokens": 1000}}
    begun = STREAM + chunk({"role": "assistant", "content": ""})
    async with open_gateway(state, database, tmp_path, **fields) as gateway:
        whole = chunk({"content": "word"}) + chunk({}, "stop") + chunk(None, usage=usage) + DONE
        gateway.provider.script(Raw((begun, 0.02, whole), then="fin"))
        await gateway.read(request_for(PATH), NO_CACHE)
        gateway.provider.script(Raw((begun, 0.2, chunk({"content": "word "}) * 4), then="fin"))
        with pytest.raises(GatewayError):
            await gateway.read(request_for(PATH, max_completion_tokens=50), NO_CACHE)
        row = await row_of(gateway)
    assert (row["outcome"], row["output_tokens"] + row["reasoning_tokens"]) == ("interrupted", 50)
