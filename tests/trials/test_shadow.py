from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cache.guard import text_of
from gateway.state.connection import State
from gateway.state.sql import Database
from gateway.trials.shadow import DailyCap, Shadows
from tests.fakes.house import House, ask, opened_house, tenant
from tests.fakes.provider import Fail, Reply


@pytest.fixture
async def house(state: State, database: Database, tmp_path: Path) -> House:  # type: ignore[misc]
    async with opened_house(state, database, tmp_path) as opened:
        yield opened


async def test_a_fresh_answer_is_bought_booked_as_shadow_and_not_kept(house: House) -> None:
    shadows = Shadows(house.pipeline.serve, DailyCap(1.0))
    for stream in (False, True):
        asked = ask("how much is it", stream=stream)
        fresh = await shadows.ask(asked, tenant())
        assert fresh is not None
        assert text_of(fresh.completion, asked.dialect)
        assert fresh.cost_pico
    rows = await house.rows()
    assert [(row["kind"], row["cache"], row["outcome"]) for row in rows] == [("shadow", "bypass", "ok")] * 2
    assert sum(row["cost_pico"] for row in rows) == 2 * fresh.cost_pico
    assert house.pipeline.cache.stats()["entries"] == 0


async def test_what_cannot_be_bought_is_none(house: House) -> None:
    shadows = Shadows(house.pipeline.serve, DailyCap(1.0))
    house.provider.script(Fail(400))
    assert await shadows.ask(ask(), tenant()) is None
    broke = tenant(budget={"limit_usd": "0.000000000001"})
    assert await shadows.ask(ask(), broke) is None
    house.provider.script(Reply(finish="length"))
    assert await shadows.ask(ask(), tenant()) is None
    assert shadows.stats() == {"shadow_asked": 3, "shadow_capped": 0, "shadow_failed": 3}


async def test_above_its_cap_nothing_is_bought_until_the_next_day(house: House) -> None:
    now = 0.0
    shadows = Shadows(house.pipeline.serve, DailyCap(1e-12, lambda: now))
    assert await shadows.ask(ask(), tenant()) is not None
    assert await shadows.ask(ask(), tenant()) is None
    now = 86_400.0
    assert await shadows.ask(ask(), tenant()) is not None
    assert shadows.stats()["shadow_capped"] == 1
