"""A whole pipeline that learns, in front of a cheap and a trusted scripted provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select

from gateway.domain.backend import PriceEntry
from gateway.domain.policy import ModelRule, Policy
from gateway.domain.tenant import Key, Tenant
from gateway.learning.class_trials import LiveTrials
from gateway.learning.evidence import Learning
from gateway.learning.shadow.holdout import Holdout
from gateway.learning.shadow.shadow import Shadows
from gateway.learning.spend_cap import SpendCap
from gateway.routing.router import Router
from gateway.settings.gateway import TrialsSettings
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from gateway.state.sql.tables import evidence, shadow_spend
from tests.fakes.gateway import InProcessGateway, backend, catalogue, grader, open_gateway
from tests.fakes.provider import Provider, Reply
from tests.support.requests import small_request

RULE = ModelRule(candidates=("small", "large"), reference="large", quality=0.9, escalate=False)
CHEAP = PriceEntry(input=Decimal("0.1"), output=Decimal("0.4"))
"""USD per 1M tokens; the trusted one costs 25 times as much."""
DEAR = PriceEntry(input=Decimal("2.5"), output=Decimal(10))
ABLE = frozenset({"logprobs", "tools", "json_schema", "vision"})
QUESTION = "What is 7 plus {}? Reply with the number alone."


@dataclass
class ShadowedGateway:
    gateway: InProcessGateway
    small: Provider
    large: Provider
    learning: Learning
    shadows: Shadows
    spend_cap: SpendCap
    trials: LiveTrials

    async def ask(self, number: int, who: Tenant, **more: Any) -> str:
        """Ask an easy question and wait until what is compared because of it is known → whose answer was served."""
        request = small_request(QUESTION.format(number), model="auto", temperature=1, **more)
        await self.gateway.read(request, who)
        await self.rest()
        await self.learning.refresh()
        served = self.gateway.record.served_by
        assert served is not None
        return served.backend.name

    async def rest(self) -> None:
        async with asyncio.timeout(10):
            await self.shadows.idle()

    async def findings(self) -> list[dict[str, Any]]:
        query = select(evidence).order_by(evidence.c.id)
        return await self.gateway.database.run(lambda link: [dict(row) for row in link.execute(query).mappings()])

    async def caps(self) -> dict[str, Any]:
        query = select(shadow_spend)
        rows = await self.gateway.database.run(lambda link: link.execute(query).mappings().all())
        return {row["team"]: row for row in rows}


def shadowed_tenant(team: str = "search", key: str = "key_1", share: float = 1.0, **policy: Any) -> Tenant:
    """Of a team all of whose answers are compared, at a generous cap."""
    trials = policy.pop("trials", {"share": share, "cap_usd": 100})
    rules = {"models": {"auto": RULE}, "cache": {"enabled": False}, "trials": trials, **policy}
    return Tenant(Key(key, team), Policy(team=team, **rules), "e1")


@pytest_asyncio.fixture
async def shadowed(
    request: pytest.FixtureRequest, state: State, database: Database, tmp_path: Path
) -> AsyncIterator[ShadowedGateway]:
    async with (
        Provider(default=Reply(text="42")) as large,
        open_gateway(
            state,
            database,
            tmp_path,
            more=lambda _: (backend(large, "large", tier="large", price=DEAR, capabilities=ABLE),),
            price=CHEAP,
            capabilities=ABLE,
        ) as gateway,
    ):
        gateway.provider.default = Reply(text="42")
        settings = TrialsSettings(cap_usd=getattr(request, "param", Decimal(1000)))
        prices, learning = catalogue(), Learning(database)
        spend_cap = SpendCap(database, settings)
        trials = LiveTrials(database)
        shadows = Shadows(database, prices, spend_cap, learning, Holdout(0.0), trials)
        gateway.pipeline.settlement = replace(gateway.pipeline.settlement, sampler=shadows)
        gateway.pipeline.router = Router(
            grader, prices, gateway.fleet, gateway.fleet.backends, sampler=shadows, evidence=learning, trials=trials
        )
        await shadows.open(gateway.pipeline)
        yield ShadowedGateway(gateway, gateway.provider, large, learning, shadows, spend_cap, trials)
        await shadows.aclose()
        await learning.aclose()
