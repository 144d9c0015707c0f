"""Unknown is never 0, a backend's own price wins, and public models are known under the names people use."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.usage import Usage
from gateway.ledger.prices.price_book import PriceBook


@pytest.fixture(scope="module")
def catalogue() -> PriceBook:
    return PriceBook.load()


def backend(model: str, url: str = "https://api.openai.com/v1", **facts: Any) -> Backend:
    return Backend(**{"name": "b", "kind": "openai", "base_url": url, "model": model, **facts})


@pytest.mark.parametrize(
    ("model", "url", "name"),
    [
        ("gpt-4o", "https://api.openai.com/v1", "openai/gpt-4o"),
        ("gpt-4o-2024-08-06", "https://api.openai.com/v1", "openai/gpt-4o"),
        ("gpt-4o-2024-05-13", "https://api.openai.com/v1", "openai/gpt-4o-2024-05-13"),
        ("GPT-4o-Mini", "https://api.openai.com/v1", "openai/gpt-4o-mini"),
        ("gpt-4-0613", "https://api.openai.com/v1", "openai/gpt-4"),
        ("gpt-4o", "https://acme.openai.azure.com/openai/v1", "openai/gpt-4o"),
        ("gpt-4o-mini", "http://10.0.0.7:9000/v1", "openai/gpt-4o-mini"),
        ("ft:gpt-4o-mini-2024-07-18:acme::x1", "https://api.openai.com/v1", "openai/ft:gpt-4o-mini-2024-07-18"),
        ("anthropic/claude-sonnet-4.5", "https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4-5"),
        ("models/gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai", "google/gemini-2.5-pro"),
        ("openai/gpt-oss-120b", "https://api.groq.com/openai/v1", "groq/openai/gpt-oss-120b"),
        ("mistral-large-2512", "https://api.mistral.ai/v1", "mistral/mistral-large-latest"),
        ("mistral-small-latest", "https://api.mistral.ai/v1", "mistral/mistral-small-latest"),
        (
            "accounts/fireworks/models/gpt-oss-20b",
            "https://api.fireworks.ai/inference/v1",
            "fireworks/gpt-oss-20b",
        ),
    ],
)
def test_public_models_are_found_where_they_are_called(catalogue: PriceBook, model: str, url: str, name: str) -> None:
    price = catalogue.price(backend(model, url))
    assert price is not None
    assert price.source == f"list {name}"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("groq/openai/gpt-oss-20b", "groq/openai/gpt-oss-20b"),
        ("together_ai/openai/gpt-oss-120b", "together/openai/gpt-oss-120b"),
        ("gemini/gemini-2.5-flash", "google/gemini-2.5-flash"),
        ("azure/gpt-4o", "openai/gpt-4o"),
        ("bedrock/some.model-v1:0", None),
    ],
)
def test_litellms_names_say_whose_list_applies(catalogue: PriceBook, model: str, name: str | None) -> None:
    price = catalogue.price(Backend(name="b", kind="litellm", model=model))
    assert (price.source if price else None) == (f"list {name}" if name else None)


def test_anthropics_dated_names_are_known(catalogue: PriceBook) -> None:
    dated = Backend(name="b", kind="anthropic", base_url="https://api.anthropic.com", model="claude-haiku-4-5-20251001")
    price = catalogue.price(dated)
    assert price is not None
    assert (price.input, price.output) == (1_000_000, 5_000_000)
    assert (price.cached_input, price.cache_write_5m, price.cache_write_1h) == (100_000, 1_250_000, 2_000_000)


@pytest.mark.parametrize(
    "unknown",
    [
        backend("whisper-1"),
        backend("gpt-9-turbo"),
        backend("qwen2.5-7b-instruct", "http://10.0.0.7:8000/v1"),
        backend("openai/gpt-oss-120b", "http://10.0.0.7:8000/v1"),
        backend("llama-3.3-70b", "https://api.groq.com/openai/v1"),
        Backend(name="b", kind="local", base_url="http://127.0.0.1:1/v1", model="gpt-4o"),
    ],
    ids=lambda backend: backend.model,
)
def test_what_nobody_knows_stays_unknown(catalogue: PriceBook, unknown: Backend) -> None:
    assert catalogue.price(unknown) is None


def test_a_backends_own_price_wins(catalogue: PriceBook) -> None:
    own = PriceEntry(input=Decimal("0.15"), cached_input=Decimal("0.075"), output=Decimal("0.60"))
    price = catalogue.price(backend("gpt-4o", price=own))
    assert price is not None
    assert (price.input, price.cached_input, price.output, price.source) == (150_000, 75_000, 600_000, "gateway.yaml")


def test_a_price_of_zero_is_a_price(catalogue: PriceBook) -> None:
    price = catalogue.price(backend("x", "http://10.0.0.7/v1", price=PriceEntry(input=Decimal(0), output=Decimal(0))))
    assert price is not None
    assert price.free


def test_a_machine_is_priced_by_the_hour_and_its_throughput(catalogue: PriceBook) -> None:
    entry = PriceEntry(machine_hour_usd=Decimal("3.60"), tokens_per_second=500)
    price = catalogue.price(backend("qwen", "http://10.0.0.7/v1", price=entry))
    assert price is not None
    assert price.output == 2_000_000  # 0.001 USD a second ÷ 500
    assert price.input == 200_000
    assert "3.60 USD per machine hour" in price.source


def test_a_cheap_machine_is_not_free(catalogue: PriceBook) -> None:
    entry = PriceEntry(machine_hour_usd=Decimal("0.000000001"), tokens_per_second=1e9)
    price = catalogue.price(backend("qwen", "http://10.0.0.7/v1", price=entry))
    assert price is not None
    assert (price.input, price.output) == (1, 1)


def test_a_local_model_has_a_slower_machine_by_default(catalogue: PriceBook) -> None:
    entry = PriceEntry(machine_hour_usd=Decimal("0.05"))
    local = catalogue.price(Backend(name="l", kind="local", base_url="http://127.0.0.1:1/v1", model="s", price=entry))
    server = catalogue.price(backend("s", "http://10.0.0.7/v1", name="s", price=entry))
    assert local is not None
    assert server is not None
    assert local.output == 555_556
    assert server.output == 13_889


def test_long_calls_cost_their_own_price(catalogue: PriceBook) -> None:
    price = catalogue.price(backend("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai"))
    assert price is not None
    assert price.cost(Usage(200_000, output_tokens=1)) == 200_000 * 1_250_000 + 10_000_000
    assert price.cost(Usage(200_001, output_tokens=1)) == 200_001 * 2_500_000 + 15_000_000


def test_a_simulated_backend_has_no_price_but_may_be_compared(catalogue: PriceBook) -> None:
    pretend = Backend(name="s", kind="simulated", model="pretend", tier="large", price=PriceEntry(input=1, output=1))  # type: ignore[arg-type]
    assert catalogue.price(pretend) is None
    found = catalogue.hypothetical(pretend)
    assert found is not None
    price, like = found
    assert like == "openai/gpt-5"
    assert price.output > 0


def test_a_simulated_backend_named_like_a_public_model_is_compared_with_that(catalogue: PriceBook) -> None:
    pretend = Backend(name="s", kind="simulated", model="claude-haiku-4-5", tier="large")
    found = catalogue.hypothetical(pretend)
    assert found is not None
    assert found[1] == "anthropic/claude-haiku-4-5"


def test_only_simulated_backends_are_hypothetical(catalogue: PriceBook) -> None:
    assert catalogue.hypothetical(backend("gpt-4o")) is None


def test_the_list_completes_what_the_file_leaves_open(catalogue: PriceBook) -> None:
    whole = catalogue.complete(backend("gpt-4o"))
    assert (whole.window_tokens, whole.max_output_tokens) == (128_000, 16_384)
    assert whole.capabilities == {"tools", "vision", "json_schema", "logprobs"}


def test_what_the_file_says_stays(catalogue: PriceBook) -> None:
    own = backend("gpt-4o", window_tokens=1000, max_output_tokens=10, capabilities=[])
    assert catalogue.complete(own) == own


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", 32768),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct-FP8", 131072),
        ("smollm2-135m-instruct", 8192),
        ("qwen2.5-7b-instruct-q4_k_m", 32768),
        ("never-heard-of-it", None),
    ],
)
def test_open_weights_have_a_known_window_but_no_capabilities(
    catalogue: PriceBook, model: str, window: int | None
) -> None:
    whole = catalogue.complete(backend(model, "http://10.0.0.7:8000/v1"))
    assert whole.window_tokens == window
    assert whole.capabilities == frozenset()


def test_every_entry_has_a_price_a_page_and_a_date_and_is_found_by_its_own_name(catalogue: PriceBook) -> None:
    entries = catalogue.entries()
    assert len(entries) > 80
    hosts = {"openai": "https://api.openai.com/v1", "groq": "https://api.groq.com/openai/v1"}
    for listed, price in entries:
        assert price.input > 0
        assert price.output > 0 or "embed" in listed.model or listed.provider == "voyage"
        assert listed.source.startswith("https://")
        assert price.as_of >= "2026-10-21"
        if listed.provider in hosts:
            assert catalogue.price(backend(listed.model, hosts[listed.provider])) == price
    names = [listed.name for listed, _ in entries]
    assert len(names) == len(set(names))
