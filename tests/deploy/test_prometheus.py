"""A real Prometheus, on the rules and on a gateway in trouble: every query of the dashboard has data."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from loadtests.ports import free_port
from tests.deploy.queries import DEPLOY, plain, rules, shown
from tests.e2e.conftest import ports  # noqa: F401 - a fixture
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.fakes.provider_script import Fail, Reply

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(180)]

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{small}/v1", model: scripted-small, tier: small,
      window_tokens: 8000, capabilities: [logprobs], price: {{input: 0.1, cached_input: 0.05, output: 0.4}}}}
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{large}/v1", model: scripted-large, tier: large,
      window_tokens: 128000, capabilities: [logprobs], price: {{input: 2.5, output: 10}}}}
  - {{name: narrow, kind: openai, base_url: "http://127.0.0.1:{large}/v1", model: nobody-knows, tier: hosted,
      window_tokens: 8000, concurrent: 1, queue: 1}}
local_model: {{enabled: false}}
requests: {{concurrent: 40}}
"""
POLICIES = {
    "plain": "cache: {enabled: false}\nmodels: {auto: {candidates: [small, large], reference: large}}\n",
    "cached": "cache: {semantic: {enabled: false}}\n",
    "poor": "cache: {enabled: false}\nbudget: {limit_usd: 0.00022, window: day}\n",
    "slow": "limits: {requests_per_minute: 3}\ncache: {enabled: false}\n",
    "short": "context: {max_input_tokens: 200}\ncache: {enabled: false}\n",
}
SCRAPE_S = 1


def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False, **more)


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    assert found, "apt-get install prometheus"
    return found


def test_the_rules_are_rules_and_fire_when_they_should(promtool: str) -> None:
    for words in (("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")):
        done = run(promtool, *words, cwd=DEPLOY / "prometheus")
        assert done.returncode == 0, done.stdout + done.stderr


def configured(folder: Path, target: str, key: str) -> Path:
    """A copy of our configuration that looks at `target` with `key`, every second."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"}
    (job,) = config["scrape_configs"]
    (folder / "key").write_text(key + "\n")
    job["authorization"]["credentials_file"] = str(folder / "key")
    job["static_configs"] = [{"targets": [target]}]
    shutil.copy(DEPLOY / "prometheus" / "rules.yml", folder)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    return folder / "prometheus.yml"


@dataclass
class Prometheus:
    """A running one."""

    base: str

    async def get(self, path: str, **query: str) -> Any:
        async with httpx.AsyncClient(timeout=30) as http:
            answer = await http.get(f"{self.base}/api/v1/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    async def ask(self, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.get("query", query=query))["result"]
        return found


@pytest.fixture
def gateway(tmp_path: Path, ports: dict[str, int]) -> Iterator[GatewayProcess]:  # noqa: F811
    with GatewayProcess(tmp_path / "home", CONFIG.format(**ports), POLICIES, workers=2) as process:
        yield process


@pytest.fixture
async def prometheus(tmp_path: Path, gateway: GatewayProcess, promtool: str) -> AsyncIterator[Prometheus]:
    key = await gateway.key("ops", "--scope", "admin")
    config = configured(tmp_path, f"127.0.0.1:{gateway.port}", key)
    checked = run(promtool, "check", "config", str(config))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    address = f"127.0.0.1:{free_port()}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
             f"--web.listen-address={address}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        until = time.monotonic() + 15
        while run("curl", "-sf", f"http://{address}/-/ready").returncode:
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            await asyncio.sleep(0.1)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(10)


class Traffic:
    """Teams that ask for what each panel shows."""

    def __init__(self, gateway: GatewayProcess, small: Provider) -> None:
        self._gateway, self._small = gateway, small
        self._keys: dict[str, str] = {}

    async def open(self) -> None:
        for team in POLICIES:
            self._keys[team] = await self._gateway.key(team)

    async def ask(self, team: str, text: str, model: str = "small", **more: Any) -> int:
        headers = {"authorization": f"Bearer {self._keys.get(team, 'tg-nobody')}"}
        messages = more.pop("messages", None) or [{"role": "user", "content": text}]
        async with httpx.AsyncClient(headers=headers, timeout=20) as http:
            url = f"{self._gateway.base}/v1/chat/completions"
            return (await http.post(url, json={"model": model, "messages": messages, **more})).status_code

    async def round(self, number: int) -> None:
        """Some of everything, but of what stops the rest."""
        self._small.script(Reply(logprob=-4.0))
        assert await self.ask("plain", f"What is the capital of country {number}?", "auto") == 200
        assert await self.ask("cached", "What is the capital of Peru?") == 200
        assert await self.ask("plain", f"hello {number}", "large") == 200
        assert await self.ask("plain", f"hello {number}", "narrow") == 200
        long = [{"role": role, "content": "word " * 150} for _ in range(3) for role in ("user", "assistant")]
        assert await self.ask("short", "", messages=[*long, {"role": "user", "content": "and now?"}]) == 200
        await self.ask("poor", "[[reply tokens=512]]", max_tokens=512)  # 93 % of the budget
        await self.ask("slow", "hello")
        await self.ask("nobody", "hello")
        slow = [self.ask("plain", f"[[reply delay_s=0.7]] {number}.{each}", "narrow") for each in range(6)]
        assert {200, 503} <= set(await asyncio.gather(*slow))

    async def overload(self) -> None:
        asked = [self.ask("plain", f"[[reply delay_s=1.5]] {each}") for each in range(150)]
        assert {200, 503} <= set(await asyncio.gather(*asked))

    async def without_state(self) -> None:
        """A moment, in which the state server is frozen."""
        pid = self._gateway.facts["valkey"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            for number in range(8):
                await self.ask("slow" if number % 2 else "cached", f"without {number}")
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_a_gateway_in_trouble_shows_in_every_panel_and_rings_the_right_alarms(
    gateway: GatewayProcess,
    prometheus: Prometheus,
    ports: dict[str, int],  # noqa: F811
) -> None:
    async with Provider(port=ports["small"]) as small, Provider(port=ports["large"]):
        traffic = Traffic(gateway, small)
        await traffic.open()
        for number in range(3):
            await traffic.round(number)
        await traffic.overload()
        await traffic.without_state()
        small.script(*[Fail(500)] * 3)
        await traffic.ask("plain", "hello")
        os.kill(gateway.facts["workers"][0], signal.SIGKILL)
        for number in range(3, 8):  # growth needs two scrapes apart
            await asyncio.sleep(1.5 * SCRAPE_S)
            await traffic.round(number)

    (target,) = (await prometheus.get("targets"))["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    missing = [name for name, query in shown().items() if not await prometheus.ask(plain(query, "60s"))]
    assert missing == []
    errors = "sum(increase(thriftgate_requests_total[2m]))"
    assert float((await prometheus.ask(errors))[0]["value"][1]) > 0
    assert await prometheus.ask("resets(sum(thriftgate_requests_total)[2m:1s]) == 0"), "a counter fell"

    groups = (await prometheus.get("rules"))["groups"]
    states = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert states.keys() == {rule.get("alert") or rule["record"] for rule in rules()}
    assert {name: rule["lastError"] for name, rule in states.items() if rule["health"] != "ok"} == {}
    ringing = {name for name, rule in states.items() if rule.get("state") in ("firing", "pending")}
    assert {"ThriftgateSpendUnpriced", "ThriftgateBudgetNearlySpent", "ThriftgateShedding"} <= ringing
    assert not {"ThriftgateLedgerBehind", "ThriftgatePoliciesStale", "ThriftgateDown"} & ringing
