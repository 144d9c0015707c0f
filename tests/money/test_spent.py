"""What a team spent is one sum, background checks included, whoever tells it: budget, alert, `usage`, savings, page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.gateway import eventually
from tests.support.naming import for_each_run

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      price: {{input: 1, output: 4}}}}
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-large, tier: large,
      price: {{input: 10, output: 40}}}}
local_model: {{enabled: false}}
trials: {{cap_usd: 5}}
"""
RULES = """\
models: {auto: {candidates: [small, large], reference: large, quality: 0.9, escalate: false}}
trials: {share: 1, cap_usd: 1}
"""
BUDGET = "budget: {{limit_usd: {limit}, hard: false, window: month, alerts: [100%]}}\n"
REQUESTS = 12


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    policies = for_each_run({"checked": RULES + BUDGET.format(limit=100)})
    home = tmp_path_factory.mktemp("spent") / "home"
    with GatewayProcess(home, CONFIG.format(port=port), policies, workers=2) as process:
        yield process


@pytest.fixture
async def provider(port: int) -> AsyncIterator[Provider]:
    async with Provider(port=port, default=Reply(text="42")) as provider:
        yield provider


async def settled(gateway: GatewayProcess, team: str) -> dict[str, Any]:
    """What `usage` says of the team, once checks were made and four looks in a row find no more of them."""
    before: dict[str, Any] = {}
    same = 0
    async with asyncio.timeout(90):
        while same < 3:
            found = await asyncio.to_thread(gateway.json, "usage", "--team", team, "--savings")
            same = same + 1 if found["total"]["checks"] and found == before else 0
            before = found
            await asyncio.sleep(0.8)
    return before


async def counter(gateway: GatewayProcess, team: str, nano: int) -> int:
    """The team's budget as the gateway counts it, in nano-dollars; waits for `nano` of them to be reported."""
    async with Redis.from_url(gateway.facts["valkey"]["url"]) as state:
        found = -1
        try:
            async with asyncio.timeout(60):
                while found != nano:
                    keys = [key async for key in state.scan_iter(f"*{team}*budget:team:usd:*")]
                    assert len(keys) == 1
                    found = int(await state.hget(keys[0], "s") or 0)
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pass
        return found


async def test_budget_alert_usage_savings_and_page_tell_the_same_sum_with_checks_in_it(
    gateway: GatewayProcess, provider: Provider, run: int
) -> None:
    team = f"checked-{run}"
    key = await gateway.key(team, "--scope", "usage", "--scope", "inference")
    own = Decimal(0)
    async with httpx.AsyncClient(base_url=gateway.base, headers={"authorization": f"Bearer {key}"}, timeout=30) as http:
        for number in range(REQUESTS):
            body = {"model": "auto", "messages": [{"role": "user", "content": f"What is {number} plus 3?"}]}
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
            own += Decimal(answer.headers["x-thriftgate-cost-usd"])
        total = (told := await settled(gateway, team))["total"]
        spent, checks = Decimal(total["cost_usd"]), Decimal(total["checks_usd"])
        assert total["requests"] == REQUESTS
        assert checks > 0
        assert spent == own + checks
        page = (await http.get("/dashboard/data")).json()
        over_http = (await http.get("/v1/usage")).json()
    assert [Decimal(budget["spent_usd"]) for budget in told["budgets"]] == [spent]
    assert Decimal(told["savings"]["total"]["cost_usd"]) == spent
    assert over_http["total"] == total
    assert (page["total"]["cost_usd"], page["total"]["checks_usd"]) == (total["cost_usd"], total["checks_usd"])
    assert sum(Decimal(tier["cost_usd"]) for tier in page["tiers"]) == spent
    assert await counter(gateway, team, int(spent * 10**9)) == int(spent * 10**9)
    shown = (await asyncio.to_thread(gateway.run, "usage", "--team", team)).stdout
    assert f"for background checks: {total['checks']} attempts" in " ".join(shown.split())
    gateway.write_policy(team, RULES + BUDGET.format(limit=0.0000001))
    sent = await eventually(lambda: asyncio.to_thread(gateway.json, "alerts", "list", "--team", team))
    assert {Decimal(one["payload"]["spent_usd"]) for one in sent} == {spent}


async def test_a_request_is_told_from_the_ledger_without_the_checks_that_came_after_it(
    gateway: GatewayProcess, provider: Provider, run: int
) -> None:
    team = f"checked-{run}"
    key = await gateway.key(team, "--scope", "usage", "--scope", "inference")
    headers = {"authorization": f"Bearer {key}"}
    body = {"model": "auto", "messages": [{"role": "user", "content": "What is nine plus nine?"}]}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30) as http:
        answer = await http.post("/v1/chat/completions", json=body)
        await settled(gateway, team)
        page = (await http.get("/dashboard/data")).json()
    assert page["total"]["requests"] >= 1
    assert all(one["outcome"] == "ok" for one in page["dearest"])
    await asyncio.to_thread(gateway.stop)
    await asyncio.to_thread(gateway.start)
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30) as http:
        record = (await http.get(f"/v1/requests/{answer.headers['x-request-id']}")).json()
    assert record["cost_usd"] == answer.headers["x-thriftgate-cost-usd"]
