"""The real gateway before the real local model: it is filled first, what does not fit goes on, drained it rests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.llama import llama
from tests.fakes.provider import Provider, Reply
from tests.support.gateway import eventually

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
admin_api: true
backends:
  - {{name: small, kind: local, base_url: "http://127.0.0.1:{small}/v1", model: real, tier: small, slots: 2,
      spill_after: 0.01, window_tokens: 512, price: {{machine_hour_usd: 0.05}}}}
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{large}/v1", model: scripted-large, tier: large,
      window_tokens: 128000, price: {{input: 2.5, output: 10}}}}
local_model: {{enabled: false}}
"""
POLICY = """\
cache: {enabled: false}
models: {either: {candidates: [small, large], reference: large, quality: 0, escalate: false}}
"""


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    with llama(slots=2, window=512) as port:
        yield {"small": port, "large": free_port()}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("local") / "home"
    with GatewayProcess(home, CONFIG.format(**ports), {"team": POLICY}) as process:
        yield process


@pytest.fixture
async def large(ports: dict[str, int]) -> AsyncIterator[Provider]:
    async with Provider(port=ports["large"], default=Reply(text="The larger one.")) as provider:
        yield provider


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {await gateway.key('team')}"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=100) as client:
        yield client


@pytest.fixture
async def admin(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {await gateway.key('ops', '--scope', 'admin')}"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30) as client:
        yield client


async def ask(http: httpx.AsyncClient, tokens: int = 60) -> tuple[str, str]:
    """Who answered, and the request's id."""
    story = [{"role": "user", "content": "What is a ship?"}]
    answer = await http.post("/v1/chat/completions", json={"model": "either", "messages": story, "max_tokens": tokens})
    assert answer.status_code == 200, answer.text
    return answer.headers["x-thriftgate-backend"], answer.headers["x-request-id"]


async def load(admin: httpx.AsyncClient) -> dict[str, Any]:
    rows = (await admin.get("/admin/fleet")).json()
    found: dict[str, Any] = next(row["load"] for row in rows if row["name"] == "small") or {}
    return found


async def test_it_is_filled_first_and_the_rest_goes_on(
    http: httpx.AsyncClient, admin: httpx.AsyncClient, large: Provider
) -> None:
    assert [(await ask(http, 4))[0] for _ in range(2)] == ["small", "small"]
    full = [asyncio.create_task(ask(http, 100)) for _ in range(2)]
    await eventually(lambda: load(admin), lambda found: found.get("running") == 2)
    spilled = await asyncio.gather(*(ask(http, 4) for _ in range(6)))
    assert Counter(name for name, _ in spilled) == {"large": 6}
    record = (await http.get(f"/v1/requests/{spilled[0][1]}")).json()
    told = {one["backend"]: one for one in record["route"]["considered"]}
    assert "for its turn there" in told["small"]["excluded"]
    assert [name for name, _ in await asyncio.gather(*full)] == ["small", "small"]
    await eventually(lambda: load(admin), lambda found: found.get("running") == 0)
    assert (await ask(http, 4))[0] == "small"


async def test_drained_it_rests_until_it_is_taken_back(
    http: httpx.AsyncClient, admin: httpx.AsyncClient, large: Provider
) -> None:
    done = await admin.post("/admin/backends/small/drain", json={"for": "10m", "reason": "new weights"})
    assert done.status_code == 200, done.text
    name, request = await ask(http, 4)
    record = (await http.get(f"/v1/requests/{request}")).json()
    told = {one["backend"]: one["excluded"] for one in record["route"]["considered"]}
    assert (name, told["small"]) == ("large", "drained: new weights")
    assert "there would be a choice if small could be called (drained: new weights)" in record["route"]["what_if"]
    assert (await admin.post("/admin/backends/small/undrain", json={})).json()["was_drained"] is True
    assert (await ask(http, 4))[0] == "small"
