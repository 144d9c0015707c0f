"""Several keys of one provider behind one model: they share the load, and none is called beyond its limit."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from pydantic import SecretStr

from gateway.domain.backend import Backend
from gateway.errors import GatewayError
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, backend, open_gateway
from tests.fakes.limited import Limited
from tests.fakes.provider import Provider
from tests.support.requests import chat_request

LIMITS = {"sk-0": 5, "sk-1": 35, "sk-2": 20, "sk-3": 20, "sk-4": 20}
"""Key → requests per second; together 100."""
LASTS_S = 2.0


async def asked(gateway: InProcessGateway, share: float, prompt: str) -> list[GatewayError]:
    """Send requests at a share of the joint limit, at random times. Returns the errors that clients get."""
    failed: list[GatewayError] = []

    async def one(number: int) -> None:
        try:
            await gateway.read(chat_request(f"{number} {prompt}", model="pooled"))
        except GatewayError as error:
            failed.append(error)

    loop, drawn = asyncio.get_running_loop(), random.Random(1)
    due, rate = loop.time(), share * sum(LIMITS.values())
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * LASTS_S)):
            due += drawn.expovariate(rate)
            await asyncio.sleep(max(0.0, due - loop.time()))
            tasks.create_task(one(number))
    return failed


@pytest.mark.timeout(60)
@pytest.mark.parametrize("prompt", ["hello", "hello " * 400], ids=["short", "long"])
@pytest.mark.parametrize("share", [0.6, 0.95])
async def test_keys_with_different_limits_share_the_load(
    state: State, database: Database, tmp_path: Path, share: float, prompt: str
) -> None:
    async with Limited(own=LIMITS, takes_s=0.0) as server:

        def keys(provider: Provider) -> tuple[Backend, ...]:
            fields = {"base_url": f"{server.url}/v1", "model": "pooled"}
            return tuple(
                backend(provider, f"key-{number}", api_key=SecretStr(key), **fields)
                for number, key in enumerate(LIMITS)
            )

        async with open_gateway(state, database, tmp_path, more=keys) as gateway:
            assert await asked(gateway, share, prompt) == []
    assert len(server.served) == len(LIMITS)
    assert sum(server.refused.values()) <= 0.02 * sum(server.served.values()), (
        "without headers it is about every second"
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("pauses", "named"), [(False, {"model": "m", "model_group": "pooled"}), (True, {})])
async def test_keys_that_report_no_limit_are_left_alone_after_a_429(
    state: State, database: Database, tmp_path: Path, pauses: bool, named: dict[str, str]
) -> None:
    async with Limited(own=LIMITS, takes_s=0.0, reports=False, pauses=pauses) as server:

        def keys(provider: Provider) -> tuple[Backend, ...]:
            fields = {"base_url": f"{server.url}/v1", "model": "pooled", **named}
            return tuple(
                backend(provider, f"key-{number}", api_key=SecretStr(key), **fields)
                for number, key in enumerate(LIMITS)
            )

        async with open_gateway(state, database, tmp_path, more=keys) as gateway:
            assert await asked(gateway, 0.95, "hello") == []
    assert sum(server.refused.values()) <= 0.2 * sum(server.served.values()), "without pauses it is about every second"
