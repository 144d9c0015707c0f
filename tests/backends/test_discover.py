from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from decimal import Decimal
from typing import Any

import orjson
import pytest

from gateway.backends.providers import discover as discover_module
from gateway.backends.providers.discover import backends_of, discover, found_text
from gateway.backends.providers.hosted import PROVIDERS
from gateway.backends.providers.model_size import size_of
from gateway.domain.backend import Backend, PriceEntry
from gateway.ledger.prices.price_book import PriceBook
from gateway.settings.environment import PROVIDER_KEYS
from gateway.settings.gateway import DiscoverySettings, GatewayConfig, Listen, LocalModelSettings
from tests.fakes.provider import Provider, Raw
from tests.fakes.provider_play import Action, play_raw

BOOK = PriceBook.load()
NOTHING: Mapping[int, str] = {}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROVIDER_KEYS.values():
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[Provider]:
    async with Provider(models=("qwen2.5:7b", "nomic-embed-text", "/models/llama 3.gguf")) as provider:
        yield provider


def names(backends: list[Backend]) -> list[str]:
    return [backend.name for backend in backends]


async def test_a_bare_machine_has_nothing() -> None:
    assert await discover(GatewayConfig(), None, simulate=False, ports=NOTHING) == []


async def test_a_bare_machine_may_have_a_simulated_large_model() -> None:
    (backend,) = await discover(GatewayConfig(), None, simulate=True, ports=NOTHING)
    assert (backend.name, backend.kind, backend.tier, backend.price) == ("simulated-large", "simulated", "large", None)


async def test_openai_and_anthropic_keys_give_a_cheap_and_a_strong_model_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-b")
    found = await discover(GatewayConfig(), None, simulate=True, ports=NOTHING)
    assert names(found) == ["gpt-4o-mini", "gpt-4o", "claude-haiku-4-5", "claude-sonnet-4-6"]
    assert {backend.tier for backend in found} == {"hosted"}
    assert [backend.kind for backend in found] == ["openai", "openai", "anthropic", "anthropic"]
    assert found[0].api_key is not None
    assert found[0].api_key.get_secret_value() == "sk-a"
    assert "sk-a" not in repr(found)


@pytest.mark.parametrize("provider", sorted(PROVIDER_KEYS))
async def test_every_provider_whose_key_is_known_is_offered(monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    monkeypatch.setenv(PROVIDER_KEYS[provider], "sk-a")
    found = await discover(GatewayConfig(), None, simulate=False, ports=NOTHING)
    assert len(found) == len(PROVIDERS[provider].models)
    assert all(backend.base_url.startswith("https://") or backend.kind == "litellm" for backend in found)


@pytest.mark.parametrize("installed", [True, False])
async def test_gemini_goes_through_litellm_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "sk-a")
    monkeypatch.setattr(discover_module, "find_spec", lambda _: object() if installed else None)
    found = await discover(GatewayConfig(), None, simulate=False, ports=NOTHING)
    assert names(found) == ["gemini/gemini-2.5-flash", "gemini/gemini-2.5-pro"]
    assert found[0].kind == ("litellm" if installed else "gemini_openai")
    assert found[0].model == ("gemini/gemini-2.5-flash" if installed else "gemini-2.5-flash")
    assert bool(found[0].base_url) is not installed


async def test_a_model_server_is_found_with_its_chat_models(server: Provider) -> None:
    found = await discover(GatewayConfig(), None, simulate=False, ports={server.port: "ollama"})
    assert names(found) == ["ollama/qwen2.5:7b", "ollama/llama-3.gguf"]
    assert found[1].model == "/models/llama 3.gguf"
    assert found[0].base_url == server.url
    assert {backend.tier for backend in found} == {"small"}
    assert [each.path for each in server.exchanges] == ["/v1/models", "/api/tags"]


async def test_a_found_server_has_an_assumed_price_and_a_strength_by_its_parameters() -> None:
    models = ("qwen2.5:7b", "llama3.2:latest", "qwen2.5:72b", "phi4")
    async with Provider(models=models) as server:
        server.sizes = {"llama3.2:latest": "70.6B", "phi4": "not said"}
        config = GatewayConfig(discovery=DiscoverySettings(machine_hour_usd=Decimal("0.1")))
        found = await discover(config, None, simulate=False, ports={server.port: "ollama"})
    assert [each.tier for each in found] == ["small", "large", "large", "small"]
    assert [each.price.machine_hour_usd for each in found if each.price] == [Decimal("0.1")] * 4
    assert [each.price.tokens_per_second for each in found if each.price] == [45.7, 4.5, 4.4, 40.0]
    assert not any(each.by_the_hour for each in found)
    price = BOOK.price(found[0])
    assert price is not None
    assert price.output == 607_829  # 0.1 USD per 3600 · 45.7 tokens
    assert found_text(found[0]).startswith(
        "ollama/qwen2.5:7b: small, 0.1 USD per hour in which it answers, 45.7 tokens a second"
    )


async def test_a_found_server_may_be_free() -> None:
    async with Provider(models=("qwen2.5:7b",)) as server:
        config = GatewayConfig(discovery=DiscoverySettings(machine_hour_usd=Decimal(0)))
        (found,) = await discover(config, None, simulate=False, ports={server.port: "ollama"})
    price = BOOK.price(found)
    assert price is not None
    assert price.free


async def test_a_served_window_is_taken_over() -> None:
    listed = {"object": "list", "data": [{"id": "qwen", "max_model_len": 32768}, {"id": "odd", "max_model_len": "big"}]}
    body = orjson.dumps(listed)
    async with Provider() as server:
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        server.answer = lambda exchange: iter_raw(head + body)  # type: ignore[method-assign]
        found = await discover(GatewayConfig(), None, simulate=False, ports={server.port: "vllm"})
    assert [backend.window_tokens for backend in found] == [32768, None]
    assert "logprobs" in found[0].capabilities


def iter_raw(data: bytes) -> Iterator[Action]:
    return play_raw(Raw((data,)))


@pytest.mark.parametrize(
    "body",
    [
        b"<html>not a model server</html>",
        b"[]",
        b'{"data": "none"}',
        b'{"data": [1, {"id": 5}, {"id": ""}, {"id": "ours", "owned_by": "thriftgate"}]}',
    ],
)
async def test_whatever_else_listens_there_offers_nothing(body: bytes) -> None:
    async with Provider() as server:
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        server.answer = lambda exchange: iter_raw(head + body)  # type: ignore[method-assign]
        assert await discover(GatewayConfig(), None, simulate=False, ports={server.port: "vllm"}) == []


async def test_a_server_that_says_nothing_is_not_waited_for_long() -> None:
    async with Provider() as server:
        server.answer = lambda exchange: iter(())  # type: ignore[method-assign]
        ports = {server.port: "vllm"}
        async with asyncio.timeout(20):
            assert await discover(GatewayConfig(), None, simulate=False, ports=ports) == []


async def test_the_gateway_does_not_find_itself_nor_its_local_model_twice(server: Provider) -> None:
    ports = {server.port: "vllm"}
    config = GatewayConfig(listen=Listen(port=server.port))
    assert await discover(config, None, simulate=False, ports=ports) == []
    found = await discover(GatewayConfig(), f"http://127.0.0.1:{server.port}", simulate=False, ports=ports)
    assert names(found) == ["local-smollm2"]
    assert not server.exchanges


async def test_the_packaged_model_is_small_sure_of_itself_and_priced_by_the_hour() -> None:
    config = GatewayConfig(local_model=LocalModelSettings(slots=2, window_tokens=2048))
    found = await discover(config, "http://127.0.0.1:9", simulate=True, ports=NOTHING)
    assert names(found) == ["local-smollm2", "simulated-large"]
    local = found[0]
    assert (local.kind, local.tier, local.base_url) == ("local", "small", "http://127.0.0.1:9/v1")
    assert (local.window_tokens, local.capabilities) == (2048, frozenset({"logprobs"}))
    assert local.price is not None
    assert local.price.machine_hour_usd == config.local_model.machine_hour_usd


async def test_weights_of_ones_own_give_the_local_model_its_name() -> None:
    config = GatewayConfig(local_model=LocalModelSettings(gguf="/weights/Qwen 2.5.gguf"))
    (found,) = await discover(config, "http://127.0.0.1:9/v1", simulate=False, ports=NOTHING)
    assert (found.name, found.base_url) == ("local-qwen-2.5", "http://127.0.0.1:9/v1")


async def test_an_entry_without_an_address_is_the_local_model(caplog: pytest.LogCaptureFixture) -> None:
    plain = Backend(name="mine", kind="local", model="smol")
    own = Backend(name="far", kind="openai", model="m", base_url="http://10.0.0.9/v1")
    config = GatewayConfig(backends=(plain, own))
    mine, other = await backends_of(config, "http://127.0.0.1:9/v1")
    assert (mine.name, mine.model, mine.base_url, mine.tier) == ("mine", "smol", "http://127.0.0.1:9/v1", "small")
    assert (mine.window_tokens, mine.capabilities, mine.slots) == (2048, frozenset({"logprobs"}), 2)
    assert mine.price == PriceEntry(machine_hour_usd=config.local_model.machine_hour_usd)
    assert other is own
    assert await backends_of(config, None) == [own]
    assert "backend mine is left out" in caplog.text


async def test_facts_that_the_file_gives_of_the_local_model_count() -> None:
    price = PriceEntry(machine_hour_usd=Decimal(2))
    entry = Backend(name="mine", kind="local", model="m", strength="large", price=price, window_tokens=512)
    (mine,) = await backends_of(GatewayConfig(backends=(entry,)), "http://127.0.0.1:9/v1")
    assert (mine.tier, mine.price, mine.window_tokens) == ("large", price, 512)


@pytest.mark.parametrize(
    ("model", "total", "active"),
    [
        ({"id": "Meta-Llama-3.1-8B-Instruct"}, 8.0, 8.0),
        ({"id": "mixtral:8x7b"}, 56.0, 56.0),
        ({"id": "qwen3:30b-a3b"}, 30.0, 3.0),
        ({"id": "smollm2:135m"}, 0.135, 0.135),
        ({"id": "/models/x.gguf", "meta": {"n_params": 27_000_000_000}}, 27.0, 27.0),
        ({"id": "llama3.2:latest", "details": {"parameter_size": "3.2B"}}, 3.2, 3.2),
        ({"id": "yi-34b-200k", "meta": {"n_params": "many"}, "details": []}, 34.0, 34.0),
    ],
)
def test_the_size_of_a_model_is_read_from_metadata_or_name(model: dict[str, Any], total: float, active: float) -> None:
    size = size_of(model)
    assert size is not None
    assert size == pytest.approx((total, active))


@pytest.mark.parametrize("name", ["phi4", "nomic-7b1m", "gpt-4.1", "0b", ""])
def test_a_size_that_is_not_told_is_unknown(name: str) -> None:
    assert size_of({"id": name}) is None
