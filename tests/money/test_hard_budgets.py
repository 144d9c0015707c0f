"""A hard budget is a limit: whatever a provider generates, its own meter never exceeds what the team may spend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import orjson
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.money.metered import Metered, Script
from tests.support.gateway import eventually
from tests.support.naming import for_each_run

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]

CONFIG = """\
backends:
  - {{name: plain, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: plain, tier: large,
      price: {{input: 1, output: 10}}}}
  - {{name: thinking, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: o-scripted, tier: large,
      capabilities: [reasoning], max_output_tokens: 20000, price: {{input: 1, output: 10}}}}
  - {{name: tiered, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: tiered, tier: large,
      price: {{input: 1, output: 10, service_tiers: {{priority: {{input: 2, output: 20}}}}}}}}
  - {{name: unlisted, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: unlisted, tier: hosted,
      location: hosted}}
  - {{name: ours, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: ours, tier: small}}
local_model: {{enabled: false}}
trials: {{cache_checks: 0}}
requests: {{lag: 5}}
"""
LIMITS = {"refuse": 0.4, "truncate": 0.4, "downgrade": 0.3}
POLICIES = for_each_run(
    {
        team: f"cache: {{enabled: false}}\nbudget: {{limit_usd: {usd}, window: month, on_exhausted: {rule}{more}}}\n"
        for team, usd, rule, more in (
            ("refuse", 0.4, "refuse", ""),
            ("truncate", 0.4, "truncate", ""),
            ("downgrade", 0.3, "downgrade", ""),
            ("burst", 0.3, "truncate", ""),
            ("trap", 0.3, "refuse", ""),
            ("thinking", 0.4, "refuse", ""),
            ("thinkingtwo", 0.4, "truncate", ""),
            ("tiers", 0.3, "refuse", ""),
            ("tools", 0.3, "refuse", ""),
            ("unpriced", 0.2, "refuse", ""),
            ("lenient", 0.2, "refuse", ", on_unpriced: allow"),
            ("deafrefuse", 0.01, "refuse", ""),
            ("deaftruncate", 0.01, "truncate", ""),
        )
    }
)


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("hard") / "home"
    with GatewayProcess(home, CONFIG.format(port=port), POLICIES, workers=3) as process:
        yield process


@pytest.fixture
async def provider(port: int) -> AsyncIterator[Metered]:
    async with Metered(port) as provider:
        yield provider


async def spend_all(
    gateway: GatewayProcess, team: str, *, model: str = "plain", clients: int = 32, rounds: int = 12, **more: Any
) -> list[httpx.Response]:
    """Clients ask, many at a time, until each of them is refused or has had its `rounds`."""
    key = await gateway.key(team)
    answers: list[httpx.Response] = []
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=gateway.base, timeout=60, limits=limits) as http:

        async def client(number: int) -> None:
            for turn in range(rounds):
                body = {"model": model, "messages": [{"role": "user", "content": f"{number} {turn}"}], **more}
                answer = await http.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})
                answers.append(answer)
                if answer.status_code == 429:
                    return

        await asyncio.gather(*(client(number) for number in range(clients)))
    return answers


async def spent_usd(gateway: GatewayProcess, team: str) -> float:
    """As the ledger has it."""
    await asyncio.to_thread(gateway.run, "ledger", "drain")
    return float(gateway.usage(team)["total"]["cost_usd"])


def finish(answer: httpx.Response) -> str:
    """Why it ended."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        said = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
        return next(
            each["choices"][0]["finish_reason"]
            for each in map(orjson.loads, reversed(said))
            if each.get("choices") and each["choices"][0]["finish_reason"]
        )
    reason: str = answer.json()["choices"][0]["finish_reason"]
    return reason


@pytest.mark.parametrize("team", ["refuse", "truncate", "downgrade"])
async def test_streams_of_many_tokens_a_chunk_stay_within_the_limit(
    gateway: GatewayProcess, provider: Metered, team: str, run: int
) -> None:
    provider.script = Script(tokens=600, per_chunk=20)
    answers = await spend_all(gateway, f"{team}-{run}", stream=True)
    limit = LIMITS[team]
    assert provider.bill_usd <= limit
    assert provider.bill_usd >= 0.9 * limit
    assert {answer.status_code for answer in answers} == {200, 429}


async def test_answers_that_are_written_at_once_stay_within_the_limit(
    gateway: GatewayProcess, provider: Metered, run: int
) -> None:
    provider.script = Script(tokens=900, per_chunk=900, pace_s=0)
    answers = await spend_all(gateway, f"burst-{run}", stream=True)
    assert 0.27 <= provider.bill_usd <= 0.3
    capped = [answer for answer in answers if answer.status_code == 200 and finish(answer) == "length"]
    assert all(int(answer.headers["x-thriftgate-output-cap"]) >= 16 for answer in capped)


@pytest.mark.parametrize("rule", ["refuse", "truncate"])
async def test_a_stream_of_a_backend_that_ignores_the_clients_limit_is_stopped_at_the_end_of_the_budget(
    gateway: GatewayProcess, provider: Metered, rule: str, run: int
) -> None:
    provider.script = Script(tokens=4000, per_chunk=5, pace_s=0.005, reads=())
    team = f"deaf{rule}-{run}"
    (answer,) = await spend_all(gateway, team, clients=1, rounds=1, stream=True, max_tokens=50)
    assert answer.status_code == 200
    assert 0.005 <= provider.bill_usd <= 0.012
    if rule == "truncate":
        assert finish(answer) == "length"
    else:
        assert "insufficient_quota" in answer.text
    assert await eventually(lambda: spent_usd(gateway, team)) >= 0.9 * provider.bill_usd


async def test_long_answers_after_short_ones_stay_within_the_limit(
    gateway: GatewayProcess, provider: Metered, run: int
) -> None:
    provider.script = Script(tokens=5)
    await spend_all(gateway, f"trap-{run}", stream=True, clients=8, rounds=4)
    provider.script = Script(tokens=4000, per_chunk=20, pace_s=0.001)
    await spend_all(gateway, f"trap-{run}", stream=True)
    assert 0.2 <= provider.bill_usd <= 0.3


@pytest.mark.parametrize("more", [{}, {"max_completion_tokens": 12_000}])
@pytest.mark.parametrize(("team", "stream"), [("thinking", False), ("thinkingtwo", True)])
async def test_hidden_reasoning_stays_within_the_limit(
    gateway: GatewayProcess, provider: Metered, team: str, stream: bool, more: dict[str, int], run: int
) -> None:
    team = f"{team}-{run}"
    before = await spent_usd(gateway, team)
    provider.script = Script(tokens=50, reasoning=8000, reads=("max_completion_tokens",))
    await spend_all(gateway, team, model="thinking", stream=stream, rounds=4, clients=16, **more)
    assert before + provider.bill_usd <= 0.4


async def test_plain_answers_of_unknown_length_stay_within_the_limit(
    gateway: GatewayProcess, provider: Metered, run: int
) -> None:
    provider.script = Script(tokens=3000, reads=("max_tokens",))
    before = await spent_usd(gateway, f"refuse-{run}")
    await spend_all(gateway, f"refuse-{run}", clients=16, rounds=3)
    assert before + provider.bill_usd <= 0.4


async def test_tool_calls_are_never_capped_and_stay_within_the_limit(
    gateway: GatewayProcess, provider: Metered, run: int
) -> None:
    provider.script = Script(tokens=700)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    answers = await spend_all(gateway, f"tools-{run}", tools=[tool], max_tokens=1000, model="thinking")
    assert 0.25 <= provider.bill_usd <= 0.3
    assert all(finish(answer) == "stop" for answer in answers if answer.status_code == 200)
    assert all(orjson.loads(body)["max_tokens"] == 1000 for body in provider.bodies)


async def test_a_hosted_model_without_a_price_is_refused_and_ones_own_counts_as_free(
    gateway: GatewayProcess, provider: Metered, run: int
) -> None:
    (refused,) = await spend_all(gateway, f"unpriced-{run}", model="unlisted", clients=1, rounds=1)
    assert refused.status_code == 429
    assert "Nobody knows what unlisted on unlisted costs" in refused.text
    assert "on_unpriced: allow" in refused.text
    assert not provider.bodies
    for team, model in (("lenient", "unlisted"), ("unpriced", "ours")):
        (served,) = await spend_all(gateway, f"{team}-{run}", model=model, clients=1, rounds=1)
        assert served.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_the_tier_that_serves_is_held_for_and_billed(
    gateway: GatewayProcess, provider: Metered, stream: bool, run: int
) -> None:
    team = f"tiers-{run}"
    before = await spent_usd(gateway, team)
    provider.script = Script(tokens=300, tier="priority", tier_factor=2)
    rounds = 2 if not stream else 12
    await spend_all(gateway, team, model="tiered", clients=10, rounds=rounds, stream=stream, service_tier="priority")
    billed = pytest.approx(before + provider.bill_usd, abs=1e-9)
    assert await eventually(lambda: spent_usd(gateway, team), lambda usd: usd == billed) <= 0.3
    rows = await asyncio.to_thread(gateway.usage, team, "service_tier")
    assert [group["service_tier"] for group in rows["rows"]] == ["priority"]


@pytest.mark.parametrize(
    ("more", "unit"),
    [({"service_tier": "scale"}, "service tier scale"), ({"web_search_options": {}}, "web_search")],
)
async def test_a_tier_or_fee_that_nobody_priced_is_refused_unless_it_is_allowed(
    gateway: GatewayProcess, provider: Metered, more: dict[str, Any], unit: str, run: int
) -> None:
    (refused,) = await spend_all(gateway, f"unpriced-{run}", model="plain", clients=1, rounds=1, **more)
    assert refused.status_code == 429
    assert f"Nobody knows what {unit} on plain costs" in refused.text
    assert not provider.bodies
    (served,) = await spend_all(gateway, f"lenient-{run}", model="plain", clients=1, rounds=1, **more)
    assert served.status_code == 200
