"""Reasoning that nobody saw is billed by time where its answer ended early, once the backend's pace is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.state.connection import State
from gateway.state.sql import Database
from tests.fakes.house import House, opened_house, until
from tests.fakes.provider import Raw
from tests.money.reporting import DONE, NO_CACHE, PRICE, STREAM, asked, chunk, row_of

PATH = "/v1/chat/completions"
USAGE = {"prompt_tokens": 10, "completion_tokens": 1001, "completion_tokens_details": {"reasoning_tokens": 1000}}


@pytest.fixture
async def house(state: State, database: Database, tmp_path: Path) -> AsyncIterator[House]:
    fields: dict[str, Any] = {"price": PRICE, "capabilities": ["reasoning"], "max_output_tokens": 5000}
    async with opened_house(state, database, tmp_path, **fields) as opened:
        yield opened


def thinking(pause_s: float) -> Raw:
    whole = chunk({"content": "word"}) + chunk({}, "stop") + chunk(None, usage=USAGE) + DONE
    return Raw((STREAM + chunk({"role": "assistant", "content": ""}), pause_s, whole), then="fin")


@pytest.mark.parametrize("how", ["hang up", "cut"])
async def test_a_stream_that_ends_while_it_reasons_is_billed_for_the_silence(house: House, how: str) -> None:
    house.provider.script(thinking(0.1))
    await house.read(asked(PATH), NO_CACHE)
    begun = STREAM + chunk({"role": "assistant", "content": ""})
    house.provider.script(Raw((begun, 0.3), then="fin") if how == "cut" else Raw((begun, 30.0)))
    if how == "cut":
        with pytest.raises(GatewayError):
            await house.read(asked(PATH), NO_CACHE)
    else:
        reading = asyncio.ensure_future(house.read(asked(PATH), NO_CACHE))
        await until(lambda: bool(house.record.attempts) and house.record.attempts[0].output_bytes)
        await asyncio.sleep(0.3)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    row = await row_of(house)
    assert (row["outcome"], row["estimated"]) == ("interrupted", True)
    assert 500 <= row["reasoning_tokens"] <= 5000  # some 3,000 at the pace that was seen, however busy the machine is


async def test_a_stream_that_ends_after_its_first_text_is_billed_for_the_silence_before_it(house: House) -> None:
    house.provider.script(thinking(0.1))
    await house.read(asked(PATH), NO_CACHE)
    pieces = (STREAM + chunk({"role": "assistant", "content": ""}), 0.1, chunk({"content": "word"}), 0.02)
    house.provider.script(Raw(pieces, then="fin"))
    with pytest.raises(GatewayError):
        await house.read(asked(PATH), NO_CACHE)
    row = await row_of(house)
    assert row["output_tokens"] >= 1
    assert 100 <= row["reasoning_tokens"] <= 5000


async def test_before_the_pace_is_known_nothing_is_made_up(house: House) -> None:
    house.provider.script(Raw((STREAM + chunk({"role": "assistant", "content": ""}), 0.1), then="fin"))
    with pytest.raises(GatewayError):
        await house.read(asked(PATH), NO_CACHE)
    assert (await row_of(house))["reasoning_tokens"] == 0
