"""What those learn of the gateway's inside who have no key, or one that may use little of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # a process starts

CONFIG = """\
backends:
  - {name: acquisition, kind: openai, base_url: "http://127.0.0.1:9/v1", model: ours-secret, tier: small,
      window_tokens: 8000, price: {input: 1, output: 2}}
  - {name: common, kind: openai, base_url: "http://127.0.0.1:9/v1", model: ours-common, tier: large,
      window_tokens: 8000, price: {input: 1, output: 2}}
  - {name: abroad, kind: openai, base_url: "http://127.0.0.1:9/v1", model: ours-abroad, tier: hosted, location: hosted,
      window_tokens: 8000, price: {input: 1, output: 2}}
local_model: {enabled: false}
"""
POLICIES = {"all": "", "one": "allowed_models: [common]\n", "here": "data: {hosted: forbidden}\n"}
BARE: dict[str, Any] = {
    "status": "ok",
    "parts": dict.fromkeys(("workers", "state", "keys", "policies", "upstream"), "ok"),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("health") / "home", CONFIG, POLICIES) as process:
        yield process


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.base, timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer tg-wrong"},
        {"x-api-key": "tg-wrong"},
        {"authorization": "Basic cHJvYmU6cHJvYmU="},
        {"x-thriftgate-key": "any", "cookie": "key=any"},
    ],
)
async def test_without_a_valid_key_health_is_a_word_on_each_part_and_no_more(
    http: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    answer = await http.get("/health", headers=headers)
    assert (answer.status_code, answer.json()) == (200, BARE)
    assert (await http.get("/health?parts=1&verbose", headers=headers)).json() == BARE


async def test_no_open_route_names_a_backend(http: httpx.AsyncClient) -> None:
    for path in ("/", "/health", "/health/live", "/health/ready", "/dashboard", "/nothing", "/v1/models", "/metrics"):
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            answer = await http.request(method, path)
            said = answer.text + str(answer.headers)
            assert not any(name in said for name in ("acquisition", "ours-secret", "common", "abroad")), (method, path)


async def test_a_key_sees_the_parts_and_the_backends_that_it_may_use(
    gateway: GatewayProcess, http: httpx.AsyncClient
) -> None:
    seen = {}
    for name, key in {
        "all": await gateway.key("all"),
        "one": await gateway.key("one"),
        "own": await gateway.key("all", "--allowed-model", "common"),
        "here": await gateway.key("here"),
        "admin": await gateway.key("one", "--scope", "admin"),
    }.items():
        answer = (await http.get("/health", headers={"x-api-key": key})).json()
        assert answer.keys() == {"status", "parts"}
        assert answer["parts"].keys() == {"workers", "state", "keys", "policies", "upstream", "backends"}
        seen[name] = set(answer["parts"]["backends"])
    every = {"acquisition", "common", "abroad"}
    assert seen == {
        "all": every,
        "one": {"common"},
        "own": {"common"},
        "here": {"acquisition", "common"},
        "admin": every,
    }


async def until_bare(http: httpx.AsyncClient, headers: dict[str, str], wanted: bool) -> None:
    """Wait until health is as without a key, or is not."""

    async def as_wanted() -> bool:
        return ((await http.get("/health", headers=headers)).json() == BARE) is wanted

    await until(as_wanted)


async def test_a_revoked_key_sees_as_much_as_none(gateway: GatewayProcess, http: httpx.AsyncClient) -> None:
    made = gateway.json("keys", "create", "--team", "all")
    headers = {"authorization": f"Bearer {made['key']}"}
    await until_bare(http, headers, False)
    gateway.run("keys", "revoke", made["id"])
    await until_bare(http, headers, True)


async def test_probes_need_no_key_and_health_tells_of_trouble_but_not_whose(
    gateway: GatewayProcess, http: httpx.AsyncClient
) -> None:
    for path in ("/health/live", "/health/ready"):
        assert (await http.get(path)).status_code == 200
    gateway.write_policy("one", "nonsense: true\n")
    await until_bare(http, {}, False)
    trouble = {"status": "degraded", "parts": {**BARE["parts"], "policies": "stale"}}
    assert (await http.get("/health")).json() == trouble
    gateway.write_policy("one", POLICIES["one"])
    await until_bare(http, {}, True)
