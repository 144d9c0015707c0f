"""Two gateways of their own on one Redis: what one learns or forgets, the other knows within moments."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from gateway.state.redis.embedded import EmbeddedServer
from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]  # two processes start, each with the real embedder

CONFIG = """\
state: {{redis_url: "{redis}"}}
telemetry: {{access_log: false}}
trials: {{cache_checks: 0}}
backends:
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: large,
      window_tokens: 128000, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
TEAM = "search"
ASKED, REWORDED = "What is the capital of Peru?", "what's the capital of peru"
LOADED = (("Who wrote Don Quixote?", "who wrote don quixote"), ("Why is the sky blue?", "why is the sky blue"))
PATIENCE_S = 60.0


@dataclass
class TwoGateways:
    gateways: tuple[GatewayProcess, GatewayProcess]
    keys: tuple[str, str]
    provider: Provider
    http: httpx.AsyncClient

    async def ask(self, which: int, text: str, cache: str = "") -> str:
        """How the cache served it: exact, semantic, miss; `504` when only the cache was asked, and had nothing."""
        body = {"model": "large", "temperature": 0, "messages": [{"role": "user", "content": text}]}
        headers = {"authorization": f"Bearer {self.keys[which]}"} | ({"x-thriftgate-cache": cache} if cache else {})
        reply = await self.http.post(f"{self.gateways[which].base}/v1/chat/completions", json=body, headers=headers)
        return str(reply.headers.get("x-thriftgate-cache", "")) if reply.status_code == 200 else str(reply.status_code)

    async def meaning(self, which: int) -> None:
        """Wait until this gateway's embedder is loaded: a rewording of something else is recognised."""
        asked, reworded = LOADED[which]
        async with asyncio.timeout(PATIENCE_S):
            while await self.ask(which, reworded, "only") != "semantic":
                await self.ask(which, asked, "refresh")
                await asyncio.sleep(0.1)

    async def until(self, which: int, text: str, served: str) -> float:
        """Ask the cache alone until that is what it says; how long that took, in seconds."""
        began = time.monotonic()
        while (told := await self.ask(which, text, "only")) != served:
            assert time.monotonic() - began < PATIENCE_S, f"{told}, not {served}"
            await asyncio.sleep(0.02)
        return time.monotonic() - began


@pytest.fixture
def redis() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="tg-shared-"))
    server = EmbeddedServer(directory)
    server.start()
    yield server.url
    server.stop()
    shutil.rmtree(directory)


@pytest_asyncio.fixture
async def pair(redis: str, tmp_path: Path) -> AsyncIterator[TwoGateways]:
    port = free_port()
    config = CONFIG.format(redis=redis, port=port)
    first, second = (GatewayProcess(tmp_path / name, config, {TEAM: ""}) for name in ("one", "two"))
    try:
        await asyncio.to_thread(first.start)
        await asyncio.to_thread(second.start)
        keys = [await each.key(TEAM) for each in (first, second)]
        async with Provider(port=port) as provider, httpx.AsyncClient(timeout=30) as http:
            yield TwoGateways((first, second), (keys[0], keys[1]), provider, http)
    finally:
        await asyncio.to_thread(first.stop)
        await asyncio.to_thread(second.stop)


async def test_what_one_answers_the_other_knows_to_the_letter_and_by_meaning_and_forgets_with_it(
    pair: TwoGateways,
) -> None:
    for which in (0, 1):
        await pair.meaning(which)
    before = len(pair.provider.exchanges)
    assert await pair.ask(1, REWORDED, "only") == "504"
    assert await pair.ask(0, ASKED) == "miss"
    exact_s = await pair.until(1, ASKED, "exact")
    semantic_s = await pair.until(1, REWORDED, "semantic")
    assert len(pair.provider.exchanges) == before + 1
    await asyncio.to_thread(pair.gateways[0].run, "cache", "flush", "--team", TEAM, "--yes")
    gone_s = await pair.until(1, ASKED, "504")
    assert await pair.ask(1, REWORDED, "only") == "504"
    print(f"known after {exact_s:.2f} s, by meaning after {semantic_s:.2f} s, gone after {gone_s:.2f} s")
