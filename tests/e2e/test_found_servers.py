"""An API key and an Ollama, both found, without a line of configuration: easy requests save at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.backends.providers.discover import discover
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.settings.environment import PROVIDER_KEYS
from gateway.settings.gateway import GatewayConfig
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, catalogue, open_gateway, tenant
from tests.fakes.provider import Provider
from tests.routing.conftest import EASY, HARD
from tests.support.requests import small_request

KEYS = {"openai": "gpt-4o", "anthropic": "claude-sonnet-4-6"}


@pytest.fixture
async def ollama() -> AsyncIterator[Provider]:
    async with Provider(models=("llama3.2:latest",)) as provider:
        provider.sizes = {"llama3.2:latest": "3.2B"}
        yield provider


@pytest.mark.parametrize("vendor", sorted(KEYS))
async def test_with_a_key_and_an_ollama_easy_requests_save_at_once(
    ollama: Provider, state: State, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str
) -> None:
    for name in PROVIDER_KEYS.values():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(PROVIDER_KEYS[vendor], "sk-test")
    found = await discover(GatewayConfig(), None, simulate=False, ports={ollama.port: "ollama"})
    strong = next(each for each in found if each.name == KEYS[vendor])

    def scripted(provider: Provider) -> tuple[Backend, ...]:
        """The vendor's models, at the scripted provider instead of the vendor's address."""
        return tuple(each.model_copy(update={"base_url": provider.url}) if each.hosted else each for each in found)

    async with open_gateway(state, database, tmp_path, more=scripted) as gateway:
        who = tenant(models={"auto": {"candidates": [each.name for each in found]}})
        assert await served(gateway, EASY, who) == "ollama/llama3.2:latest"
        assert len([each for each in ollama.exchanges if each.path == "/v1/chat/completions"]) == 1
        (row,) = await gateway.rows()
        price = catalogue().price(strong)
        assert price is not None
        assert row["cost_pico"] is not None
        usual = price.cost(Usage(row["input_tokens"], output_tokens=row["output_tokens"]))
        assert 0 < row["cost_pico"] < usual / 10
        assert await served(gateway, HARD, who) == strong.name


async def served(gateway: InProcessGateway, text: str, who: object) -> str:
    await gateway.read(small_request(text, model="auto"), who)  # type: ignore[arg-type]
    attempt = gateway.record.served_by
    assert attempt is not None
    return attempt.backend.name
