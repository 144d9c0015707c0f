"""Observe mode's promise beside what happens when it is switched on, and a drop of quality, on real gateways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.gateway import eventually, usage_total
from tests.support.naming import for_each_run

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{small}/v1", model: scripted-small, tier: small,
      window_tokens: 8000, price: {{input: 0.1, output: 0.4}}}}
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{large}/v1", model: scripted-large, tier: large,
      window_tokens: 128000, price: {{input: 2.5, output: 10}}}}
local_model: {{enabled: false}}
trials: {{cap_usd: 5}}
"""
RULES = """\
cache: {enabled: false}
models: {auto: {candidates: [small, large], reference: large, quality: 0.9, escalate: false}}
"""
POLICIES = for_each_run(
    {"adopting": f"{RULES}mode: observe\n", "watching": f"{RULES}trials: {{share: 1, cap_usd: 1}}\n"}
)
EASY = [f"What is {a} plus {b}? Reply with the number." for a in range(2, 8) for b in range(3, 8)]
HARD = [
    "Let G be a finite group in which every element has order at most 2. Prove that G is abelian, determine all "
    f"possible orders of G, and count the subgroups of index 2 when the group has {elements} elements."
    for elements in (4, 8, 16, 32, 64, 128, 256, 512)
]


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("small", "large")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("learning") / "home", CONFIG.format(**ports), POLICIES, workers=2
    ) as process:
        yield process


@pytest.fixture
async def small(ports: dict[str, int]) -> AsyncIterator[Provider]:
    async with Provider(port=ports["small"], default=Reply(text="42")) as provider:
        yield provider


@pytest.fixture
async def large(ports: dict[str, int]) -> AsyncIterator[Provider]:
    async with Provider(port=ports["large"], default=Reply(text="42")) as provider:
        yield provider


async def ask(http: httpx.AsyncClient, text: str) -> httpx.Response:
    answer = await http.post(
        "/v1/chat/completions", json={"model": "auto", "messages": [{"role": "user", "content": text}]}
    )
    assert answer.status_code == 200
    return answer


def client(gateway: GatewayProcess, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.base, headers={"authorization": f"Bearer {key}"}, timeout=20)


async def test_observing_promises_what_routing_then_costs(
    gateway: GatewayProcess, small: Provider, large: Provider, capsys: pytest.CaptureFixture[str], run: int
) -> None:
    team = f"adopting-{run}"
    key = await gateway.key(team)
    prompts = [*EASY, *HARD]
    async with client(gateway, key) as http:
        served = {(await ask(http, prompt)).headers["x-thriftgate-backend"] for prompt in prompts}
        assert served == {"large"}
        observed = await usage_total(gateway, team, requests=len(prompts))
        as_served, promised = Decimal(observed["undecided_usd"]), Decimal(observed["decided_usd"])
        assert observed["decided"] == len(prompts)
        assert as_served == Decimal(observed["cost_usd"])
        assert promised < as_served
        assert 0.5 < observed["decided_adequacy"] < 1

        gateway.write_policy(team, f"{RULES}mode: route\n")
        asked = len(prompts) + 1
        while (await ask(http, EASY[0])).headers["x-thriftgate-backend"] != "small":
            asked += 1
            await asyncio.sleep(0.2)
        before = Decimal((await usage_total(gateway, team, requests=asked))["cost_usd"])
        by = [(await ask(http, prompt)).headers["x-thriftgate-backend"] for prompt in prompts]
        after = await usage_total(gateway, team, requests=asked + len(prompts))
    cost = Decimal(after["cost_usd"]) - before
    assert set(by) == {"small", "large"}
    with capsys.disabled():
        print(f"\nas served {as_served} USD, promised {promised} USD, switched on {cost} USD", flush=True)
    assert cost == promised  # the scripted backends answer in the same number of tokens
    shown = (await asyncio.to_thread(gateway.run, "usage", "--team", team)).stdout
    assert "Routing did not choose for" in shown


async def test_a_drop_is_noticed_by_every_worker_and_told(
    gateway: GatewayProcess, small: Provider, large: Provider, capsys: pytest.CaptureFixture[str], run: int
) -> None:
    team = f"watching-{run}"
    key = await gateway.key(team)
    small.default = Reply(text="41")
    asked, in_a_row = 0, 0
    async with asyncio.timeout(90):
        while in_a_row < 20:
            async with client(gateway, key) as http:  # each time a new connection, so that both workers are asked
                by = (await ask(http, EASY[asked % len(EASY)])).headers["x-thriftgate-backend"]
            asked += 1
            in_a_row = in_a_row + 1 if by == "large" else 0
            await asyncio.sleep(0.1)
    with capsys.disabled():
        print(f"\nthe last wrong answer was that to request {asked - in_a_row}", flush=True)
    assert asked - in_a_row < 100
    await eventually(
        lambda: asyncio.to_thread(alerts, gateway, team), lambda found: "quality" in [alert["kind"] for alert in found]
    )
    learned = await asyncio.to_thread(gateway.json, "router", "learned", "--team", team)
    (one,) = learned["backends"]
    assert (one["team"], one["backend"], one["below"]) == (team, "small", True)
    assert Decimal(learned["spent"][0]["spent_usd"]) > 0


def alerts(gateway: GatewayProcess, team: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.json("alerts", "list", "--team", team)
    return found
