"""Two gateways share a state server and a ledger database; one of them is killed whole, with streams open."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from gateway.state.leases.orphaned_holds import host_of
from gateway.state.leases.worker_names import own_name
from gateway.state.redis.embedded import EmbeddedServer
from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.gateway import eventually, usage_total
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

LIMIT = 3000
"""Output tokens: one costs a thousandth of a dollar, and the budget is three dollars."""
STREAMS = 12
CONFIG = """\
state: {{redis_url: "{redis}"}}
ledger: {{database_url: "{database}"}}
telemetry: {{access_log: false}}
trials: {{cache_checks: 0}}
backends:
  - {{name: chat, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: large,
      price: {{input: 0, output: 1000}}}}
local_model: {{enabled: false}}
"""
POLICY = "cache: {enabled: false}\nbudget: {limit_usd: 3, on_exhausted: truncate, window: month}\n"
BODY = {
    "model": "chat",
    "stream": True,
    "max_tokens": 1000,
    "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": "count"}],
}


class Hosts:
    """`lost` is killed, `other` goes on."""

    def __init__(
        self, lost: GatewayProcess, other: GatewayProcess, provider: Provider, http: httpx.AsyncClient
    ) -> None:
        self.lost, self.other, self.provider, self.http = lost, other, provider, http
        self.key = ""
        self.received = 0
        """Output tokens that clients got."""

    @property
    def sent(self) -> int:
        """Output tokens by the provider's own account."""
        return sum(exchange.tokens_sent for exchange in list(self.provider.exchanges))

    async def ask(self, host: GatewayProcess) -> int:
        try:
            headers = {"authorization": f"Bearer {self.key}"}
            async with self.http.stream(
                "POST", f"{host.base}/v1/chat/completions", json=BODY, headers=headers
            ) as reply:
                async for line in reply.aiter_lines():
                    self.received += '"content":"t' in line.replace(" ", "")
                return reply.status_code
        except httpx.HTTPError:
            return 0

    async def lose_a_host(self) -> int:
        """While it streams; how many tokens had been sent by then."""
        streams = [asyncio.ensure_future(self.ask(self.lost)) for _ in range(STREAMS)]
        await until(lambda: self.sent >= 400)
        await asyncio.to_thread(self.lost.kill)
        await asyncio.gather(*streams)
        self.provider.default = Reply(tokens=100, drip_s=0.002)  # those that follow wait for each other's holds
        return self.sent

    async def use_up(self) -> None:
        """Ask the living host until it refuses everything."""
        async with asyncio.timeout(100):
            while set(await asyncio.gather(*(self.ask(self.other) for _ in range(6)))) != {429}:
                pass

    def findings(self) -> list[str]:
        """What `doctor` on the living host says about hosts."""
        done = self.other.run("doctor", "--json", check=False)
        return [one["what"] for one in orjson.loads(done.stdout) if one["what"].startswith("host ")]

    def alerts(self) -> list[dict[str, Any]]:
        listed = self.other.json("alerts", "list", "--team", "crowd")
        return [alert for alert in listed if alert["kind"] == "lost_host"]

    async def use_up_to(self, tokens: int) -> None:
        async with asyncio.timeout(100):
            while self.sent < tokens:
                await self.use_up()
                await asyncio.sleep(0.2)  # until what the lost host held is released


@pytest.fixture
def redis() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="tg-shared-"))
    server = EmbeddedServer(directory)
    server.start()
    yield server.url
    server.stop()
    shutil.rmtree(directory)


@asynccontextmanager
async def two_hosts(redis: str, database: str, folder: Path) -> AsyncIterator[Hosts]:
    port = free_port()
    config = CONFIG.format(redis=redis, port=port, database=database)
    lost, other = (GatewayProcess(folder / name, config, {"crowd": POLICY}) for name in ("lost", "other"))
    try:
        await asyncio.to_thread(lost.start)
        await asyncio.to_thread(other.start)
        async with Provider(port=port) as provider, httpx.AsyncClient(timeout=30) as http:
            provider.default = Reply(tokens=100, drip_s=0.02)
            hosts = Hosts(lost, other, provider, http)
            hosts.key = await lost.key("crowd")
            yield hosts
    finally:
        for host in (lost, other):
            if host.process is not None:
                await asyncio.to_thread(host.stop)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.sqlite"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def hosts(redis: str, database_url: str, tmp_path: Path) -> AsyncIterator[Hosts]:
    async with two_hosts(redis, database_url, tmp_path) as hosts:
        yield hosts


async def test_what_a_lost_host_may_have_spent_is_spent_by_nobody_else_until_it_comes_back(hosts: Hosts) -> None:
    before = await hosts.lose_a_host()
    await hosts.use_up()
    first = hosts.sent
    print(f"{before} tokens sent when the host was lost, {first} of {LIMIT} when the other refused")
    assert first <= LIMIT
    await asyncio.to_thread(hosts.lost.start)
    await hosts.use_up_to(int(0.95 * LIMIT))
    total = await usage_total(hosts.other, "crowd", attempts=len(hosts.provider.exchanges))
    print(f"{hosts.sent} sent and {total['output_tokens']} on the ledger once it was back")
    assert await asyncio.to_thread(hosts.findings) == []
    # What was on the way to the host when it was killed, nobody can know of.
    assert hosts.received - 4 * STREAMS <= total["output_tokens"] <= hosts.sent
    assert total["output_tokens"] <= LIMIT


async def test_an_operator_releases_what_a_host_held_whose_disk_is_gone(hosts: Hosts) -> None:
    await hosts.lose_a_host()
    await hosts.use_up()
    assert hosts.sent <= LIMIT
    (finding,) = await eventually(lambda: asyncio.to_thread(hosts.findings), within_s=60)
    alerts = await eventually(lambda: asyncio.to_thread(hosts.alerts), within_s=60)
    name = host_of(own_name())
    print(finding)
    assert finding.startswith(f"host {name}: 1 dead worker")
    assert "of 3 USD (team crowd, month from" in finding
    assert (alerts[0]["payload"]["host"], len(alerts)) == (name, 1)
    health = await hosts.http.get(f"{hosts.other.base}/health", headers={"authorization": f"Bearer {hosts.key}"})
    assert "see `thriftgate doctor`" in health.json()["parts"]["workers"]
    shown = await asyncio.to_thread(hosts.other.run, "ledger", "release", name)
    assert "to be released (give --yes)" in shown.stdout
    assert "may be overrun by that amount" in shown.stdout
    before = hosts.sent
    await asyncio.to_thread(hosts.other.run, "ledger", "release", name, "--yes")
    assert await asyncio.to_thread(hosts.findings) == []
    await hosts.use_up_to(before + 300)
