"""Two workers under clients that keep their connections, while workers are rolled, killed and told to leave."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from gateway.runtime.tasks import Tasks
from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
requests: {{drain: 5s, drain_delay: {delay}}}
telemetry: {{access_log: false}}
backends:
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: large,
      window_tokens: 128000, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
CLIENTS = 6


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
async def gateway(request: pytest.FixtureRequest, tmp_path: Path, port: int) -> AsyncIterator[GatewayProcess]:
    config = CONFIG.format(port=port, delay=getattr(request, "param", "1s"))
    gateway = GatewayProcess(tmp_path / "home", config, {"plain": "cache: {enabled: false}\n"}, workers=2)
    await asyncio.to_thread(gateway.start)
    await until(lambda: len(gateway.facts["workers"]) == 2)
    yield gateway
    if gateway.process and gateway.process.poll() is None:
        await asyncio.to_thread(gateway.stop)


def replaced(gateway: GatewayProcess, before: set[int]) -> bool:
    return not before & set(gateway.facts["workers"])


class Load:
    """Clients that ask again and again on connections they keep, every other time for a stream."""

    def __init__(self, gateway: GatewayProcess, key: str) -> None:
        self._url, self._headers = f"{gateway.base}/v1/chat/completions", {"authorization": f"Bearer {key}"}
        self._tasks = Tasks()
        self._over = False
        self.answered: Counter[str] = Counter()
        self.failed: list[str] = []

    def start(self) -> None:
        for number in range(CLIENTS):
            self._tasks.spawn(self._client(number), f"client {number}")

    async def _client(self, number: int) -> None:
        async with httpx.AsyncClient(headers=self._headers, timeout=30) as client:
            turn = number
            while not self._over:
                turn += 1
                body = {"model": "large", "messages": [{"role": "user", "content": "hi"}], "stream": turn % 2 == 0}
                try:
                    reply = await client.post(self._url, json=body)
                except httpx.HTTPError as error:
                    self.failed.append(repr(error))
                    continue
                whole = b"[DONE]" in reply.content if body["stream"] else b"usage" in reply.content
                if reply.status_code == 200 and whole:
                    self.answered["stream" if body["stream"] else "plain"] += 1
                else:
                    self.failed.append(f"{reply.status_code} {reply.text[-200:]}")
                await asyncio.sleep(0.01 * (number % 3))

    def went_on(self, answers: int) -> bool:
        return self.answered.total() > answers

    async def end(self) -> None:
        """After their last answers."""
        self._over = True
        await self._tasks.drain(30)


async def test_two_rolls_under_load_fail_no_request(gateway: GatewayProcess, port: int) -> None:
    load = Load(gateway, await gateway.key("plain"))
    assert gateway.process
    async with Provider(port=port, default=Reply(tokens=8, drip_s=0.01)):
        load.start()
        for _ in range(2):
            before = set(gateway.facts["workers"])
            answered = load.answered.total()
            gateway.process.send_signal(signal.SIGUSR2)
            await until(partial(replaced, gateway, before))
            await until(partial(load.went_on, answered + 4 * CLIENTS))
        await load.end()
        assert load.failed == []
        assert min(load.answered["plain"], load.answered["stream"]) > 20
        assert await asyncio.to_thread(gateway.stop) == 0
    total = (await asyncio.to_thread(gateway.usage, "plain"))["total"]
    assert (total["requests"], total["interrupted"]) == (load.answered.total(), 0)


async def test_a_killed_worker_breaks_only_what_it_was_answering(gateway: GatewayProcess, port: int) -> None:
    load = Load(gateway, await gateway.key("plain"))
    async with Provider(port=port, default=Reply(tokens=8, drip_s=0.01)):
        load.start()
        await until(lambda: load.answered.total() > 20)
        killed = gateway.facts["workers"][0]
        os.kill(killed, signal.SIGKILL)
        await until(lambda: killed not in gateway.facts["workers"] and len(gateway.facts["workers"]) == 2)
        answered = load.answered.total()
        await until(lambda: load.answered.total() > answered + 20)
        await load.end()
        assert len(load.failed) <= CLIENTS
        assert all("200" not in each for each in load.failed)


@pytest.mark.parametrize("gateway", ["4s"], indirect=True)  # time for two requests on a busy machine
async def test_between_the_signal_and_the_end_of_the_delay_nobody_is_turned_away(
    gateway: GatewayProcess, port: int
) -> None:
    key = await gateway.key("plain")
    body = {"model": "large", "messages": [{"role": "user", "content": "hi"}]}
    assert gateway.process
    async with Provider(port=port), httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as client:
        assert (await client.get(f"{gateway.base}/health/ready")).status_code == 200
        gateway.process.terminate()
        while (await client.get(f"{gateway.base}/health/ready")).status_code != 503:
            await asyncio.sleep(0.02)
        async with httpx.AsyncClient(timeout=30) as other:  # a new connection
            reply = await other.post(f"{gateway.base}/v1/chat/completions", json=body, headers=client.headers)
        assert reply.status_code == 200
        assert (await client.post(f"{gateway.base}/v1/chat/completions", json=body)).status_code == 200
    assert await asyncio.to_thread(gateway.stop) == 0
