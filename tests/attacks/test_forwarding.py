"""One ordinary key against the provider's account, which is one for all teams, through a running gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.requests import chat_fields, fields_in

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
backends:
  - {{name: gpt, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: gpt, tier: large, location: hosted,
      region: eu, capabilities: [tools, vision, reasoning], dialects: [openai_chat, openai_responses],
      price: {{input: 1, output: 1}}}}
  - {{name: claude, kind: anthropic, base_url: "http://127.0.0.1:{port}/v1", model: claude, tier: large,
      location: hosted, region: eu, capabilities: [tools, vision, reasoning], price: {{input: 1, output: 1}}}}
local_model: {{enabled: false}}
"""
POLICIES = {
    "closed": "cache: {enabled: false}\n",
    "open": "cache: {enabled: false}\ndata: {forward: [mcp, files, stores], store_prompts: true}\n",
    "strict": "cache: {enabled: false}\ndata: {regions: [eu]}\nlimits: {service_tiers: []}\n",
}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
REQUESTS: dict[str, dict[str, Any]] = {
    "chat": chat_fields(model="gpt"),
    "responses": fields_in("openai_responses", model="gpt"),
    "messages": fields_in("anthropic_messages", model="claude"),
}
MCP = {"type": "mcp", "server_label": "s", "server_url": "https://elsewhere.test/mcp"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("forwarding") / "home"
    with GatewayProcess(home, CONFIG.format(port=port), POLICIES) as process:
        yield process


@pytest.fixture
async def provider(port: int) -> AsyncIterator[Provider]:
    async with Provider(port=port, default=Reply(tokens=3)) as provider:
        yield provider


async def post(
    gateway: GatewayProcess, team: str, dialect: str, content: bytes | None = None, query: str = "", **more: Any
) -> httpx.Response:
    key, headers = await gateway.key(team), more.pop("headers", {})
    body = content or orjson.dumps({**REQUESTS[dialect], **more})
    async with httpx.AsyncClient(base_url=gateway.base, timeout=30, headers={"x-api-key": key, **headers}) as http:
        return await http.post(PATHS[dialect] + query, content=body, headers={"content-type": "application/json"})


def check_refusal(answer: httpx.Response, *words: str) -> None:
    """Refused in its dialect's shape, with these words."""
    assert answer.status_code in (400, 403), answer.text
    error = answer.json()["error"]
    assert answer.json().get("type", "error") == "error"
    for word in words:
        assert word in error["message"] or word == error.get("param"), error


CLOSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("responses", {"tools": [MCP]}, "tools[0]", "data.forward"),
    ("messages", {"mcp_servers": [{"url": "https://a.test", "name": "n"}]}, "mcp_servers", "data.forward"),
    ("chat", {"tools": [MCP]}, "tools[0]", "data.forward"),
    (
        "chat",
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-theirs"}}]}]},
        "messages[0].content[0].file.file_id",
        "data.forward",
    ),
    (
        "responses",
        {"tools": [{"type": "file_search", "vector_store_ids": ["vs_theirs"]}]},
        "tools[0].vector_store_ids",
        "data.forward",
    ),
    ("messages", {"container": "container_theirs"}, "container", "data.forward"),
    ("chat", {"previous_response_id": "resp_theirs"}, "previous_response_id", "data.forward"),
    ("chat", {"store": True}, "store", "data.store_prompts"),
    ("responses", {"store": True}, "store", "data.store_prompts"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "fields", "field", "key"), CLOSED)
async def test_an_ordinary_key_reaches_nothing_in_the_providers_account(
    gateway: GatewayProcess, provider: Provider, dialect: str, fields: dict[str, Any], field: str, key: str
) -> None:
    check_refusal(await post(gateway, "closed", dialect, **fields), field, key)
    assert not provider.exchanges


async def test_escapes_and_keys_given_twice_hide_nothing(gateway: GatewayProcess, provider: Provider) -> None:
    escaped = rb'{"model":"gpt","input":"hi","tools":[{"type":"\u006dcp","serv\u0065r_url":"https://a.test"}]}'
    check_refusal(await post(gateway, "closed", "responses", escaped), "tools[0]", "data.forward")
    twice = b'{"model":"gpt","messages":[{"role":"user","content":"hi"}],"store":true,"store":false}'
    check_refusal(await post(gateway, "closed", "chat", twice), "store", "twice")
    assert not provider.exchanges


async def test_a_policy_opens_what_it_names(gateway: GatewayProcess, provider: Provider) -> None:
    for dialect, fields, _, _ in CLOSED:
        answer = await post(gateway, "open", dialect, **fields)
        assert answer.status_code == 200, (fields, answer.text)
    sent = [exchange.json for exchange in provider.exchanges]
    assert sent[0]["tools"] == [MCP]
    assert (sent[5]["container"], sent[6]["previous_response_id"]) == ("container_theirs", "resp_theirs")
    assert (sent[7]["store"], sent[8]["store"]) == (True, False)  # the gateway keeps responses itself


async def test_a_response_nobody_said_how_to_store_is_sent_as_not_to_be_stored(
    gateway: GatewayProcess, provider: Provider
) -> None:
    assert (await post(gateway, "closed", "responses")).status_code == 200
    assert provider.last.json["store"] is False


async def test_unknown_fields_betas_usual_tiers_and_the_providers_own_tools_go_on_unchanged(
    gateway: GatewayProcess, provider: Provider
) -> None:
    more = {
        "never_heard_of": {"a": [1]},
        "service_tier": "auto",
        "tools": [{"type": "web_search_20250305", "name": "w"}],
    }
    beta = {"anthropic-beta": "brand-new-2026-01-01", "anthropic-version": "2023-06-01"}
    assert (await post(gateway, "closed", "messages", headers=beta, speed="fast", **more)).status_code == 200
    assert {name: provider.last.json[name] for name in more} == more
    assert provider.last.json["speed"] == "fast"
    assert provider.last.header(b"anthropic-beta") == beta["anthropic-beta"].encode()
    more = {"never_heard_of": 1, "service_tier": "priority"}
    assert (await post(gateway, "closed", "chat", **more)).status_code == 200
    assert {name: provider.last.json[name] for name in more} == more


async def test_a_policy_of_regions_and_tiers_says_no_to_what_leaves_them(
    gateway: GatewayProcess, provider: Provider
) -> None:
    check_refusal(await post(gateway, "strict", "messages", inference_geo="us"), "inference_geo", "data.regions")
    check_refusal(
        await post(gateway, "strict", "responses", tools=[{"type": "web_search"}]), "tools[0]", "data.regions"
    )
    check_refusal(
        await post(gateway, "strict", "chat", service_tier="priority"), "service_tier", "limits.service_tiers"
    )
    check_refusal(await post(gateway, "strict", "messages", speed="fast"), "speed", "limits.service_tiers")
    assert not provider.exchanges
    for fields in ({"service_tier": "default"}, {}):
        assert (await post(gateway, "strict", "chat", **fields)).status_code == 200


async def test_counting_the_tokens_of_a_prompt_sends_on_no_more_than_asking_it(
    gateway: GatewayProcess, provider: Provider
) -> None:
    source = {"type": "file", "file_id": "file_theirs"}
    asked = {"messages": [{"role": "user", "content": [{"type": "document", "source": source}]}]}
    key = await gateway.key("closed")
    async with httpx.AsyncClient(base_url=gateway.base, timeout=30, headers={"x-api-key": key}) as http:
        answer = await http.post("/v1/messages/count_tokens", json={**REQUESTS["messages"], **asked})
    check_refusal(answer, "messages[0].content[0].source.file_id", "data.forward")
    assert not provider.exchanges
