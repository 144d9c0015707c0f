"""The operator's entries stand above the packaged ones, from their day on; what cannot be meant is refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.ledger.prices.catalogue import PACKAGED, Catalogue
from gateway.ledger.prices.price_book import PriceBook
from gateway.settings.files import ConfigError


def own(tmp_path: Path, *models: dict[str, Any]) -> Path:
    path = tmp_path / "prices.json"
    path.write_bytes(orjson.dumps({"as_of": "2026-11-01", "via": "us", "models": models}))
    return path


def entry(**facts: Any) -> dict[str, Any]:
    return {"provider": "openai", "model": "gpt-4o", "input": 1, "output": 2, **facts}


def gpt(url: str = "https://api.openai.com/v1", model: str = "gpt-4o", **facts: Any) -> Backend:
    return Backend(name="gpt", kind="openai", base_url=url, model=model, **facts)


def test_an_own_entry_stands_above_the_packaged_one(tmp_path: Path) -> None:
    path = own(tmp_path, entry(), entry(model="gpt-99", output=3))
    catalogue = PriceBook(Catalogue.load(own=path))
    known, new = catalogue.price(gpt()), catalogue.price(gpt(model="gpt-99").model_copy(update={"name": "new"}))
    assert known is not None
    assert new is not None
    assert (known.input, known.as_of, new.output) == (1_000_000, "2026-11-01", 3_000_000)


def test_an_entry_holds_from_its_day_on(tmp_path: Path) -> None:
    path = own(tmp_path, entry(valid_from="2026-12-01"), entry(input=3, valid_from="2027-01-01"))
    found = []
    for day in (date(2026, 11, 30), date(2026, 12, 1), date(2027, 2, 1)):
        price = PriceBook(Catalogue.load(own=path), today=lambda day=day: day).price(gpt())
        assert price is not None
        found.append(price.input)
    assert found == [2_500_000, 1_000_000, 3_000_000]


@pytest.mark.parametrize(
    ("url", "region", "factor"),
    [
        ("https://api.openai.com/v1", "", 10),
        ("https://api.openai.com/v1", "eu", 10),
        ("https://eu.api.openai.com/v1", "", 11),
        ("https://us.api.openai.com/v1", "eu", 11),
        ("https://acme.openai.azure.com/openai/v1", "eu-west-1", 11),
        ("https://acme.openai.azure.com/openai/v1", "asia", 10),
    ],
)
def test_a_region_has_its_factor(url: str, region: str, factor: int) -> None:
    catalogue = PriceBook.load()
    price, usual = catalogue.price(gpt(url, "gpt-5.4", region=region)), Catalogue.load().named("openai/gpt-5.4")
    assert price is not None
    assert usual is not None
    assert price.output == usual.output * factor * 10**5
    assert ("region" in price.source) is (factor == 11)


def test_batch_and_long_context_prices_are_listed() -> None:
    listed = Catalogue.load().named("anthropic/claude-haiku-5-5")
    assert listed is not None
    assert listed.batch is not None
    assert listed.beyond is not None
    assert (listed.batch.output, listed.beyond.tokens) == (Decimal("0.25"), 100_000)


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ({"input": -1}, r"models\.0 \(openai/gpt-4o\)\.input: must be an amount in USD that is not negative"),
        ({"output": 20_000}, r"output: must be USD per 1M tokens, at most 10,000"),
        ({"input": "0.0000001"}, r"input: must have at most six decimal places"),
        ({"input": "cheap"}, r"input: must be an amount in USD"),
        ({"inptu": 1}, r"inptu: Extra inputs"),
        ({"batch": {"input": 1}}, r"batch\.output: Field required"),
        ({"regions": {"eu": "far"}}, r"regions\.eu"),
    ],
)
def test_prices_that_cannot_be_meant_are_refused_with_file_and_key(
    tmp_path: Path, facts: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as told:
        Catalogue.load(own=own(tmp_path, entry(**facts)))
    assert str(tmp_path / "prices.json") in str(told.value)


def test_a_file_that_is_no_json_is_refused_and_none_is_fine(tmp_path: Path) -> None:
    assert Catalogue.load(own=tmp_path / "none.json").listing.models
    (tmp_path / "prices.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        Catalogue.load(own=tmp_path / "prices.json")


@pytest.mark.parametrize(
    "wrong", [{"input": -1, "output": 1}, {"input": 1, "output": 10**6}, {"input": 1e-9, "output": 1}]
)
def test_a_backends_own_price_is_held_to_the_same(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        PriceEntry.model_validate(wrong)


CLOUDS = [
    ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "eu-central-1", "anthropic/claude-sonnet-4-5", "1.1"),
    ("bedrock", "global.anthropic.claude-sonnet-4-5-20250929-v1:0", "eu-central-1", "anthropic/claude-sonnet-4-5", "1"),
    ("bedrock", "anthropic.claude-haiku-4-5-20251001-v1:0", "us-east-1", "anthropic/claude-haiku-4-5", "1.1"),
    ("bedrock", "amazon.nova-pro-v1:0", "us-east-1", None, ""),
    ("vertex", "claude-sonnet-4-5@20250929", "europe-west1", "anthropic/claude-sonnet-4-5", "1.1"),
    ("vertex", "claude-sonnet-4-5@20250929", "global", "anthropic/claude-sonnet-4-5", "1"),
    ("vertex", "gemini-2.5-flash", "europe-west1", "google/gemini-2.5-flash", "1"),
    ("gemini", "gemini-2.5-flash", "", "google/gemini-2.5-flash", "1"),
]


@pytest.mark.parametrize(("kind", "model", "region", "name", "factor"), CLOUDS)
def test_clouds_names_of_a_model_have_its_makers_price(
    kind: str, model: str, region: str, name: str | None, factor: str
) -> None:
    project = {"project": "p"} if kind == "vertex" else {}
    backend = Backend.model_validate({"name": "b", "kind": kind, "model": model, "region": region, **project})
    catalogue = Catalogue.load(PACKAGED)
    found = catalogue.find(backend)
    assert (found and found.name) == name
    assert found is None or catalogue.factor(found, backend) == Decimal(factor)
