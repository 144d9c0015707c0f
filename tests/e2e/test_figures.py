"""/metrics of a gateway with two workers: the whole host, whichever answers, whoever was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from tests.e2e.conftest import Providers
from tests.e2e.gateway_process import GatewayProcess
from tests.telemetry.test_metrics import labelled, read

pytestmark = pytest.mark.timeout(120)  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{small}/v1", model: scripted-small, tier: small,
      price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
"""
Found = dict[str, dict[tuple[tuple[str, str], ...], float]]


@pytest.fixture
async def pair(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> AsyncIterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("pair") / "home"
    rules = {"plain": "cache: {enabled: false}\nbudget: {limit_usd: 5, window: day}\n"}
    started = GatewayProcess(home, CONFIG.format(**ports), rules, workers=2)
    await asyncio.to_thread(started.start)
    yield started
    await asyncio.to_thread(started.stop)


class Caller:
    """Asks on a new connection each time, so that now one worker answers and now the other."""

    def __init__(self, base: str, key: str) -> None:
        self._base, self._headers = base, {"authorization": f"Bearer {key}"}
        self.answered = 0

    async def ask(self, times: int) -> None:
        for _ in range(times):
            async with httpx.AsyncClient(timeout=30, headers=self._headers) as http:
                told = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}
                answer = await http.post(f"{self._base}/v1/chat/completions", json=told)
                assert answer.status_code == 200, answer.text
                self.answered += 1

    async def scrape(self) -> Found:
        async with httpx.AsyncClient(timeout=30, headers=self._headers) as http:
            return read((await http.get(f"{self._base}/metrics")).text)

    async def until(self, right: Callable[[Found], bool], times: int = 1) -> Found:
        """Scrape until it is so, `times` in a row, as another worker may answer each time."""
        deadline, hits = time.monotonic() + 60, 0
        while True:
            found = await self.scrape()
            hits = hits + 1 if right(found) else 0
            if hits == times:
                return found
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.02)


def total(found: Found, name: str = "thriftgate_requests_total") -> float:
    return sum(found.get(name, {}).values())


async def test_the_whole_host_is_shown_whichever_worker_answers_and_whoever_was_killed(
    pair: GatewayProcess, providers: Providers
) -> None:
    caller = Caller(pair.base, await pair.key("plain", "--scope", "inference", "--scope", "admin"))
    await caller.ask(30)
    found = await caller.until(
        lambda found: total(found) == 30 and found["thriftgate_workers_ready"] == {(): 2}, times=12
    )
    assert total(found, "thriftgate_request_duration_seconds_count") == 30
    assert found["thriftgate_figures_age_seconds"][()] < 30
    processes = {dict(labels)["process"] for labels in found["thriftgate_process_resident_bytes"]}
    assert processes == {"supervisor", "worker 0", "worker 1", "valkey"}

    victim = pair.facts["workers"][0]
    os.kill(victim, signal.SIGKILL)
    lowest = 30.0
    for _ in range(20):
        now = total(await caller.scrape())
        assert now == lowest
    await caller.ask(20)
    killed = labelled(cause="SIGKILL")
    found = await caller.until(
        lambda found: (
            total(found) == 50
            and found["thriftgate_workers_ready"] == {(): 2}
            and found["thriftgate_worker_restarts_total"][killed] == 1
        ),
        times=12,
    )
    assert found["thriftgate_worker_starts_total"] == {(): 3}
    found = await caller.until(lambda found: total(found, "thriftgate_ledger_rows_total") == caller.answered)
    assert found["thriftgate_ledger_lag_seconds"][()] < 30
    assert found["thriftgate_state_server_up"] == {(): 1}
    await caller.until(lambda found: "thriftgate_budget_used_ratio" in found)

    assert pair.process is not None
    pair.process.send_signal(signal.SIGUSR2)
    rolled = labelled(cause="rolling")
    await caller.until(lambda found: found["thriftgate_worker_restarts_total"].get(rolled) == 2, times=6)
    assert total(await caller.scrape()) == 50
    assert "cannot be read" not in pair.log


async def test_the_figures_are_for_admins_alone(pair: GatewayProcess) -> None:
    plain = await pair.key("plain")
    async with httpx.AsyncClient(timeout=30) as http:
        assert (await http.get(f"{pair.base}/metrics")).status_code == 401
        refused = await http.get(f"{pair.base}/metrics", headers={"authorization": f"Bearer {plain}"})
    assert refused.status_code == 403
