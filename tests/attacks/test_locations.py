"""Under `data.hosted: forbidden` no prompt leaves the operator's machines, whatever a backend calls itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.backends.providers.hosted import PROVIDERS
from gateway.domain.backend import Backend
from gateway.domain.routing.whereabouts import providers_own
from gateway.ledger.prices.catalogue import PACKAGED, Catalogue
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.requests import post_chat

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]  # processes start, on a machine that is busy

NAMED = "machine.invalid"
"""Never looked up; were a prompt sent there, the name would be asked for, and the answer be 502 and not 403."""
CONFIG = """\
ceilings: {ceilings}
backends:
  - {{name: mine, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: m, tier: small, price: {price}}}
  - {{name: declared, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: d, tier: small, location: hosted,
      price: {price}}}
  - {{name: proxy, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: p, tier: hosted, price: {price}}}
  - {{name: small, kind: openai, base_url: "http://{name}/v1", model: s, tier: small, price: {price}}}
  - {{name: claimed, kind: openai, base_url: "https://api.openai.com/v1", model: c, tier: large, location: local,
      price: {price}}}
  - {{name: dotted, kind: local, base_url: "https://API.openai.com./v1", model: c2, tier: small, location: local,
      price: {price}}}
  - {{name: mapped, kind: local, base_url: "http://[::ffff:203.0.113.9]/v1", model: f, tier: small, price: {price}}}
  - {{name: ours, kind: local, base_url: "http://{name}:1/v1", model: o, tier: small, location: local, price: {price}}}
local_model: {{enabled: false}}
trials: {{cache_checks: 0}}
"""
FORBIDDEN = "data: {hosted: forbidden}\ncache: {enabled: false}\n"


@pytest.fixture(scope="module", params=["policy", "ceiling"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, port: int
) -> Iterator[GatewayProcess]:
    ceiling = request.param == "ceiling"
    config = CONFIG.format(
        port=port, name=NAMED, price="{input: 1, output: 1}", ceilings="{hosted: forbidden}" if ceiling else "{}"
    )
    home = tmp_path_factory.mktemp("locations") / "home"
    policy = "cache: {enabled: false}\n" if ceiling else FORBIDDEN
    judged = policy + "trials: {share: 100%, judge: small}\n"
    with GatewayProcess(home, config, {"closed": policy, "judged": judged}) as process:
        yield process


async def reply_of(gateway: GatewayProcess, model: str, team: str = "closed") -> httpx.Response:
    async with httpx.AsyncClient(base_url=gateway.base, timeout=30) as http:
        return await post_chat(http, key=await gateway.key(team), model=model, max_tokens=5)


@pytest.mark.parametrize("model", ["small", "declared", "proxy", "claimed", "dotted", "mapped"])
async def test_a_backend_that_is_not_known_to_be_the_operators_gets_no_prompt(
    gateway: GatewayProcess, provider: Provider, model: str
) -> None:
    reply = await reply_of(gateway, model)
    assert reply.status_code == 403
    assert "the policy forbids hosted backends" in reply.json()["error"]["message"]
    assert not provider.exchanges


async def test_a_private_address_and_a_name_that_the_operator_calls_local_are_open(
    gateway: GatewayProcess, provider: Provider
) -> None:
    assert (await reply_of(gateway, "mine")).status_code == 200
    assert (await reply_of(gateway, "ours")).status_code == 502  # it was tried, and the name leads nowhere
    for _ in range(3):
        assert (await reply_of(gateway, "auto", "judged")).headers["x-thriftgate-backend"] in ("mine", "ours")


async def test_only_what_is_open_is_listed(gateway: GatewayProcess) -> None:
    key = await gateway.key("closed")
    async with httpx.AsyncClient(timeout=30, base_url=gateway.base) as http:
        found = (await http.get("/v1/models", headers={"authorization": f"Bearer {key}"})).json()["data"]
    assert {each["id"] for each in found} == {"auto", "mine", "m", "ours", "o"}


async def test_check_lists_every_override_and_what_the_upgrade_changes(gateway: GatewayProcess) -> None:
    notes = "\n".join((await asyncio.to_thread(gateway.json, "check"))["notes"])
    for told in (
        "backends.claimed: location: local is not followed: api.openai.com is a provider's",
        "backends.declared: location: hosted, at a private address",
        "backends.ours: location: local, at an address that is not private",
        "backends.proxy: counts as hosted by its tier",
        "backends.small: counts as hosted, since its address is public, or a name that may lead anywhere: "
        "teams under data.hosted: forbidden (",
    ):
        assert told in notes
    assert "backends.mine" not in notes


def backend(url: str, **more: Any) -> Backend:
    return Backend.model_validate({"name": "b", "kind": "local", "model": "m", "base_url": url, **more})


@pytest.mark.parametrize(
    ("url", "hosted"),
    [
        ("http://127.0.0.1:8000/v1", False),
        ("http://10.1.2.3/v1", False),
        ("http://[::1]:8000/v1", False),
        ("http://[fd00::1]/v1", False),
        ("http://localhost:8000/v1", False),
        ("unix:/run/model.sock", False),
        ("http://8.8.8.8/v1", True),
        ("http://[64:ff9b::8.8.8.8]/v1", True),
        ("http://[::ffff:8.8.8.8]/v1", True),
        ("http://192.0.0.170/v1", True),
        ("http://127.1/v1", True),
        ("http://localhost.example.com/v1", True),
        ("http://vllm:8000/v1", True),
        ("127.0.0.1:8000/v1", True),
    ],
)
def test_an_address_tells_where_a_backend_is_without_a_look_up(url: str, hosted: bool) -> None:
    assert backend(url).hosted is hosted
    assert backend(url, tier="small").hosted is hosted
    assert backend(url, location="local").hosted is False
    assert backend(url, location="hosted").hosted is True


@pytest.mark.parametrize("location", ["local", "hosted", None])
def test_an_address_with_a_private_user_name_is_refused(location: str | None) -> None:
    with pytest.raises(ValueError, match="base_url must not contain a user name or a password"):
        backend("http://127.0.0.1@example.com/v1", location=location)


async def test_every_provider_that_the_gateway_knows_is_hosted_whatever_is_said() -> None:
    listing = (await asyncio.to_thread(Catalogue.load, PACKAGED)).listing
    hosts = {host.lstrip(".") for facts in listing.providers.values() for host in facts.hosts}
    urls = {f"https://{host}/v1" for host in hosts} | {entry.base_url for entry in PROVIDERS.values() if entry.base_url}
    regional = {
        "https://eu.api.openai.com",
        "https://bedrock-runtime.eu-west-1.amazonaws.com",
        "https://a.openai.azure.com",
    }
    for url in urls | regional:
        assert providers_own(url), url
        assert backend(url, location="local", tier="small").hosted
    assert not providers_own("https://ec2-1-2-3-4.compute.amazonaws.com/v1")
    assert Backend(name="b", kind="litellm", model="gemini/x", location="local").hosted
