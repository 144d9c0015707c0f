"""Compared requests are kept for learning only if the team's policy says so."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import text

from gateway.domain.request import Controls
from gateway.domain.tenant import Tenant
from gateway.ledger.store import samples
from gateway.ledger.store.samples import KeptSample
from tests.fakes.provider import Reply
from tests.learning.conftest import QUESTION, ShadowedGateway, shadowed_tenant


async def kept(shadowed: ShadowedGateway, **data: Any) -> list[KeptSample]:
    who: Tenant = shadowed_tenant(data=data)
    shadowed.small.default = Reply(text="41")
    await shadowed.ask(1, who, controls=Controls(session="desk"))
    return await shadowed.gateway.database.run(lambda link: list(samples.read(link, "search", time.time())))


async def test_both_answers_are_kept_with_the_reference_first(shadowed: ShadowedGateway) -> None:
    (found,) = await kept(shadowed, store_samples="30d")
    assert found.request["messages"][-1]["content"] == QUESTION.format(1)
    assert not found.request.keys() & {"user", "metadata", "model", "stream"}
    texts = {one["backend"]: one["choices"][0]["message"]["content"] for one in found.answers}
    assert list(texts.items()) == [("large", "42"), ("small", "41")]
    assert (found.judge, found.score) == ("agreement", 0.0)


async def test_nothing_is_kept_by_default(shadowed: ShadowedGateway) -> None:
    assert await kept(shadowed) == []
    assert len(await shadowed.findings()) == 1


async def test_a_sample_that_cannot_be_stored_costs_no_comparison(
    shadowed: ShadowedGateway, caplog: pytest.LogCaptureFixture
) -> None:
    await shadowed.gateway.database.run(lambda link: link.execute(text("ALTER TABLE samples RENAME TO gone")))
    who = shadowed_tenant(data={"store_samples": "1d"})
    await shadowed.ask(1, who, controls=Controls(session="desk"))
    assert len(await shadowed.findings()) == 1
    assert shadowed.shadows.stats()["unkept"] == 1
    assert "could not be stored" in caplog.text
