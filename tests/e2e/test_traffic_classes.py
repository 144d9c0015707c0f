"""Spanish tool calls open their class for the cheaper backend, and a drop closes it, on a gateway with two workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.gateway import eventually
from tests.support.naming import for_each_run
from tests.telemetry.test_metrics import labelled, read

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{small}/v1", model: scripted-small, tier: small,
      window_tokens: 8000, capabilities: [tools], price: {{input: 0.1, output: 0.4}}}}
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{large}/v1", model: scripted-large, tier: large,
      window_tokens: 128000, capabilities: [tools], price: {{input: 2.5, output: 10}}}}
local_model: {{enabled: false}}
learning: {{cap_usd: 5}}
"""
POLICY = """\
cache: {enabled: false}
models: {auto: {candidates: [small, large], baseline: large, quality: 90%}}
learning: {classes: 100%, cap_usd: 5}
"""
TOOL = {
    "type": "function",
    "function": {"name": "clima", "parameters": {"type": "object", "required": ["ciudad", "dia"]}},
}


def call(arguments: str) -> Reply:
    function = {"name": "clima", "arguments": arguments}
    made = [{"id": "c1", "type": "function", "function": function}]
    return Reply(message={"role": "assistant", "content": None, "tool_calls": made})


GOOD, SAME, WRONG = (
    call('{"ciudad": "Lima", "dia": 1}'),
    call('{"dia": 1, "ciudad": "Lima"}'),
    call('{"ciudad": "Lima", "dia": 2}'),
)


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("small", "large")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("classes") / "home", CONFIG.format(**ports), for_each_run({"viajes": POLICY}), workers=2
    ) as process:
        yield process


@pytest.fixture
async def small(ports: dict[str, int]) -> AsyncIterator[Provider]:
    async with Provider(port=ports["small"], default=SAME) as provider:
        yield provider


@pytest.fixture
async def large(ports: dict[str, int]) -> AsyncIterator[Provider]:
    async with Provider(port=ports["large"], default=GOOD) as provider:
        yield provider


class Client:
    """Sends requests of ever new conversations."""

    def __init__(self, gateway: GatewayProcess, key: str) -> None:
        self.gateway, self.headers, self.number, self.last = gateway, {"authorization": f"Bearer {key}"}, 0, ""

    async def ask(self) -> str:
        """The backend that served the next request. Each request has a new connection, so both workers serve."""
        self.number += 1
        text = f"¿Qué tiempo hará en la ciudad de Lima el día {self.number} de este mes, según los datos?"
        body: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": text}], "tools": [TOOL]}
        async with httpx.AsyncClient(base_url=self.gateway.base, headers=self.headers, timeout=30) as http:
            answer = await http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        self.last = answer.headers["x-request-id"]
        return answer.headers["x-thriftgate-backend"]

    async def until(self, backend: str, in_a_row: int = 20) -> int:
        """Ask until `backend` has served `in_a_row` times → requests before these."""
        begun, row = self.number, 0
        async with asyncio.timeout(120):
            while row < in_a_row:
                row = row + 1 if await self.ask() == backend else 0
        return self.number - in_a_row - begun


async def test_spanish_tool_calls_open_a_class_and_a_drop_closes_it(
    gateway: GatewayProcess, small: Provider, large: Provider, capsys: pytest.CaptureFixture[str], run: int
) -> None:
    team = f"viajes-{run}"
    client = Client(gateway, await gateway.key(team))
    assert await client.ask() == "large"
    opened = await client.until("small")
    assert "class es/tools/opening: small serves 100% of sessions" in await reason(client)

    small.default = WRONG
    closed = await client.until("large")
    assert "class es/tools/opening: small serves none" in await reason(client)
    with capsys.disabled():
        print(f"\nopened within {opened} requests; {closed} requests from the drop until it was closed", flush=True)
    assert closed < 400
    admin = await gateway.key(team, "--scope", "admin")
    closings = labelled(room="class_trials", figure="closed")
    async with httpx.AsyncClient(
        timeout=30, base_url=gateway.base, headers={"authorization": f"Bearer {admin}"}
    ) as http:

        async def counted() -> float:
            return read((await http.get("/metrics")).text)["thriftgate_room"].get(closings, 0)

        assert await eventually(counted) >= 1


async def reason(client: Client) -> str:
    """Why the last request was routed as it was."""

    def explained() -> str:
        return client.gateway.run("explain", client.last, check=False).stdout

    # After many requests only some flight records are stored, so a later request may be asked about.
    for _ in range(8):
        with contextlib.suppress(TimeoutError):
            return await eventually(
                lambda: asyncio.to_thread(explained), lambda text: "class es/tools" in text, within_s=5
            )
        await client.ask()
    raise AssertionError(f"no reason is known: {explained()}")
