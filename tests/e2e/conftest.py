"""A gateway in a process of its own in front of scripted providers that each test opens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from openai import AsyncOpenAI

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.naming import for_each_run

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{small}/v1", model: scripted-small, tier: small,
      api_key: env:SMALL_KEY, window_tokens: 8000, capabilities: [logprobs, tools, json_schema],
      price: {{input: 0.1, cached_input: 0.05, output: 0.4}}}}
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{large}/v1", model: scripted-large, tier: large,
      window_tokens: 128000, capabilities: [logprobs, tools, vision, json_schema], price: {{input: 2.5, output: 10}}}}
  - {{name: claude, kind: anthropic, base_url: "http://127.0.0.1:{claude}/v1", model: scripted-claude, tier: hosted,
      window_tokens: 200000, capabilities: [tools, vision], price: {{input: 3, output: 15}}}}
local_model: {{enabled: false}}
admin_api: true
trials: {{cache_checks: 0}}
"""

POLICIES = {
    "plain": "cache: {enabled: false}\n",
    "cached": "models: {mine: large}\n",
    "short": "context: {max_input_tokens: 200}\ncache: {enabled: false}\n",
    **for_each_run(
        {
            **dict.fromkeys(
                ("frugal", "thrifty"), "cache: {enabled: false}\nbudget: {limit_usd: 0.0001, window: day}\n"
            ),
            "poor": "cache: {enabled: false}\nbudget: {limit_usd: 0.0002, window: day}\n",
            **dict.fromkeys(("rpm3", "slow"), "limits: {requests_per_minute: 3}\ncache: {enabled: false}\n"),
        }
    ),
}


@pytest.fixture(scope="session")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("small", "large", "claude")}


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("gateway") / "home",
        CONFIG.format(**ports),
        POLICIES,
        {"SMALL_KEY": "sk-upstream-small-secret"},
    ) as process:
        yield process


@dataclass
class Providers:
    """What stands behind the gateway during one test."""

    small: Provider
    large: Provider
    claude: Provider


@pytest.fixture
async def providers(ports: dict[str, int]) -> AsyncIterator[Providers]:
    async with (
        Provider(port=ports["small"]) as small,
        Provider(port=ports["large"]) as large,
        Provider(port=ports["claude"]) as claude,
    ):
        yield Providers(small, large, claude)


_clients: list[AsyncOpenAI] = []


def client(gateway: GatewayProcess, key: str) -> AsyncOpenAI:
    """The vendor's own SDK, without its own retries: the gateway's behaviour is what is tested."""
    made = AsyncOpenAI(base_url=f"{gateway.base}/v1", api_key=key, max_retries=0)
    _clients.append(made)
    return made


@pytest.fixture(autouse=True)
async def closed_clients() -> AsyncIterator[None]:
    """Every client that a test made is closed in the test's own loop."""
    yield
    while _clients:
        await _clients.pop().close()
