"""GET /v1/requests of a gateway with two workers: whichever answers knows of every request."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.e2e.conftest import Providers
from tests.e2e.gateway_process import GatewayProcess

pytestmark = pytest.mark.timeout(120)  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{small}/v1", model: scripted-small, tier: small,
      price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
"""


@pytest.fixture
async def pair(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> AsyncIterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("pair") / "home"
    rules = dict.fromkeys(("plain", "other"), "cache: {enabled: false}\n")
    started = GatewayProcess(home, CONFIG.format(**ports), rules, workers=2)
    await asyncio.to_thread(started.start)
    yield started
    await asyncio.to_thread(started.stop)


async def status_and_source(gateway: GatewayProcess, key: str, request_id: str) -> tuple[int, str]:
    """Asked on a connection of its own: status and source."""
    async with httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as http:
        answer = await http.get(f"{gateway.base}/v1/requests/{request_id}")
    return answer.status_code, answer.json().get("source", "")


async def test_a_plain_request_is_found_through_every_worker_and_by_its_own_team_alone(
    pair: GatewayProcess, providers: Providers
) -> None:
    key, other = await pair.key("plain"), await pair.key("other")
    async with httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as http:
        body = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}
        answer = await http.post(f"{pair.base}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    request_id = answer.headers["x-request-id"]
    seen: set[tuple[int, str]] = set()
    deadline = time.monotonic() + 60
    while not {(200, "recorder"), (200, "ledger")} <= seen:
        assert time.monotonic() < deadline, seen
        seen |= set(await asyncio.gather(*(status_and_source(pair, key, request_id) for _ in range(8))))
    assert {await status_and_source(pair, key, request_id) for _ in range(20)} <= {(200, "recorder"), (200, "ledger")}
    assert {await status_and_source(pair, other, request_id) for _ in range(20)} == {(404, "")}

    os.kill(pair.facts["valkey"]["pid"], signal.SIGSTOP)  # the ledger answers without it
    try:
        assert {status for status, _ in [await status_and_source(pair, key, request_id) for _ in range(10)]} == {200}
    finally:
        os.kill(pair.facts["valkey"]["pid"], signal.SIGCONT)
