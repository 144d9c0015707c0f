"""A provider's headers that are relayed to clients: bounded in number, length, characters and in what numbers say."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate

import httpx
import orjson
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.fakes.provider_script import Raw
from tests.support.requests import post_chat

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # a process starts, on a machine that is busy

CONFIG = """\
trials: {{cache_checks: 0}}
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
"""
WHOLE = orjson.dumps(
    {
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    }
)  # fmt: skip
FAR = 10**9


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("relayed") / "home"
    policy = "cache: {enabled: false}\npassthrough: [audio]\n"
    with GatewayProcess(home, CONFIG.format(port=port), {"one": policy}) as process:
        yield process


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {await gateway.key('one')}"}
    async with httpx.AsyncClient(base_url=gateway.base, timeout=30, headers=headers) as client:
        yield client


async def answered(http: httpx.AsyncClient, provider: Provider, *headers: str) -> httpx.Response:
    """What a client gets when the provider's answer has `headers`."""
    lines = ["HTTP/1.1 200 OK", "content-type: application/json", f"content-length: {len(WHOLE)}", *headers]
    provider.script(Raw(("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + WHOLE,)))
    reply = await post_chat(http, model="small")
    assert reply.status_code == 200, reply.text
    return reply


@pytest.mark.parametrize(
    "header",
    [
        f"x-ratelimit-reset-requests: {FAR}s",
        f"x-ratelimit-reset-requests: {'9' * 400}",
        f"x-ratelimit-reset-tokens: {'9' * 5000}ms",
        "x-ratelimit-reset: NaN",
        "x-ratelimit-reset: inf",
        "x-ratelimit-reset: -5",
        "x-ratelimit-reset: 1e999",
        f"x-ratelimit-reset: {FAR * 10}",
        "x-ratelimit-reset-tokens: 999h",
        "anthropic-ratelimit-tokens-reset: 9999-12-31T23:59:59Z",
        "anthropic-ratelimit-tokens-reset: 0001-01-01T00:00:00+23:59",
        "anthropic-ratelimit-tokens-reset: Fri, 31 Dec 9999 23:59:59 GMT",
        "anthropic-ratelimit-tokens-reset: soon",
        f"x-ratelimit-limit-requests: {'9' * 16}",
        f"x-ratelimit-remaining-tokens: {'9' * 5000}",
        "x-ratelimit-remaining-tokens: 1e999",
        f"anthropic-ratelimit-tokens-limit: {'9' * 60_000}",
        f"openai-processing-ms: {'9' * 30}",
        "openai-processing-ms: -1",
        "openai-processing-ms: nan",
        f"openai-version: {'x' * 300}",
        f"openai-version: {'9' * 16}",
        f"openai-{'x' * 100}: 1",
        "openai-version: caf\xe9",
        "openai-version: a\tb",
    ],
    ids=lambda header: header[:50],
)
async def test_an_absurd_header_is_not_relayed(http: httpx.AsyncClient, provider: Provider, header: str) -> None:
    reply = await answered(http, provider, header, "openai-model: m")
    assert header.partition(":")[0] not in reply.headers
    assert reply.headers["openai-model"] == "m"


async def test_plausible_headers_are_relayed_unchanged(http: httpx.AsyncClient, provider: Provider) -> None:
    soon = time.time() + 30
    sent = {
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
        "x-ratelimit-remaining-tokens": "-1",
        "x-ratelimit-reset-requests": "2m59.56s",
        "x-ratelimit-reset-tokens": "120ms",
        "x-ratelimit-reset-day": "23h59m0s",
        "x-ratelimit-reset": f"{soon:.0f}",
        "x-ratelimit-reset-ms": f"{soon * 1000:.0f}",
        "x-ratelimit-reset-at": formatdate(soon, usegmt=True),
        "x-ratelimit-resource": "core",
        "anthropic-ratelimit-requests-reset": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(soon)),
        "anthropic-ratelimit-unified-status": "allowed",
        "openai-processing-ms": "1234",
        "openai-version": "2020-10-01",
    }
    reply = await answered(http, provider, *(f"{name}: {value}" for name, value in sent.items()))
    assert {name: reply.headers.get(name) for name in sent} == sent


async def test_a_provider_cannot_have_thousands_of_headers_relayed(http: httpx.AsyncClient, provider: Provider) -> None:
    reply = await answered(http, provider, *(f"openai-x{number}: 1" for number in range(3000)))
    assert len([name for name in reply.headers if name.startswith("openai-x")]) == 32


@pytest.mark.parametrize("kind", ["audio/" + "x" * 5000, "audio/mpeg\tx", "audio/\xe9"], ids=lambda kind: kind[:12])
async def test_an_odd_content_type_is_relayed_as_bytes(http: httpx.AsyncClient, provider: Provider, kind: str) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 4\r\n\r\n".encode("latin-1")
    provider.script(Raw((head + b"ID3 ",)))
    reply = await http.post("/v1/audio/speech", json={"model": "small", "input": "hello", "voice": "alloy"})
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/octet-stream"), reply.text
