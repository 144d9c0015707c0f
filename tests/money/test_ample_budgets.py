"""While the budget is ample, a provider receives what the client sent, to the byte, but for the model's name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
backends:
  - {{name: chat, kind: openai, base_url: "http://127.0.0.1:{chat}/v1", model: upstream, tier: large,
      price: {{input: 1, output: 10}}}}
  - {{name: claude, kind: anthropic, base_url: "http://127.0.0.1:{claude}/v1", model: upstream, tier: large,
      price: {{input: 1, output: 10}}}}
local_model: {{enabled: false}}
"""
POLICIES = {"rich": "cache: {enabled: false}\nbudget: {limit_usd: 1000, window: total, on_exhausted: truncate}\n"}
BODIES = {
    "chat": (
        "/v1/chat/completions",
        b'{ "model" : "chat","messages":[{"role":"user","content":"caf\\u00e9  \xc3\xa9"}], "seed":1.0 %b}',
    ),
    "completions": ("/v1/completions", b'{"prompt" : "say \\u0041", "model":"chat" , "seed":7%b}'),
    "responses": ("/v1/responses", b'{"input":"hi \\/ there","model":  "chat", "metadata":{"a":"b"}, "store":false%b}'),
    "messages": (
        "/v1/messages",
        b'{"max_tokens": 900,"model":"claude","messages":[{"role":"user","content":"h\\u0069"}],"top_k":4 %b}',
    ),
}
STREAMS = {
    "chat": b',"stream":true,"stream_options":{"include_usage":true}',
    "completions": b',"stream":true,"stream_options":{"include_usage":true}',
    "responses": b',"stream":true',
    "messages": b',"stream":true',
}
LIMITS = {
    "chat": b',"max_tokens":77,"max_completion_tokens" :77',
    "completions": b',"max_tokens" : 50',
    "responses": b', "max_output_tokens":64',
    "messages": b',"thinking":{"type":"enabled","budget_tokens":899}',
}


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("chat", "claude")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("ample") / "home", CONFIG.format(**ports), POLICIES) as process:
        yield process


@pytest.fixture
async def providers(ports: dict[str, int]) -> AsyncIterator[dict[str, Provider]]:
    async with Provider(port=ports["chat"]) as chat, Provider(port=ports["claude"]) as claude:
        yield {"chat": chat, "claude": claude}


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", BODIES)
async def test_the_provider_receives_the_clients_own_bytes(
    gateway: GatewayProcess, providers: dict[str, Provider], dialect: str, stream: bool, limited: bool
) -> None:
    path, shape = BODIES[dialect]
    body = shape % ((STREAMS[dialect] if stream else b"") + (LIMITS[dialect] if limited else b""))
    key = await gateway.key("rich")
    async with httpx.AsyncClient(base_url=gateway.base, timeout=20) as http:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        answer = await http.post(path, content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert "x-thriftgate-output-cap" not in answer.headers
    name = b"claude" if dialect == "messages" else b"chat"
    (exchange,) = providers[name.decode()].exchanges
    assert exchange.body == body.replace(b'"%b"' % name, b'"upstream"')
