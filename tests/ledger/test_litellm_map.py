"""litellm's map is read as plain JSON; what it says otherwise is told, what it cannot mean is refused."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.prices.catalogue import Catalogue, load_own
from gateway.ledger.prices.litellm_map import Comparison, compare, installed, own_file, read
from gateway.ledger.prices.price_book import PriceBook
from gateway.settings.files import ConfigError

TODAY = date(2026, 11, 21)
GPT = {
    "litellm_provider": "openai",
    "mode": "chat",
    "input_cost_per_token": 2.5e-06,
    "cache_read_input_token_cost": 1.25e-06,
    "output_cost_per_token": 1e-05,
}


def compared(**found: dict[str, Any]) -> Comparison:
    names = {name.replace("_", "-"): facts for name, facts in found.items()}
    return compare(Catalogue.load(), names, "map.json", TODAY)


def test_the_same_is_no_change() -> None:
    found = compared(gpt_4o=GPT)
    assert (found.changes, found.same, found.refused) == ((), 1, ())
    assert "openai/gpt-4o" not in found.gone
    assert "openai/gpt-5" in found.gone


def test_a_change_is_told_class_by_class_and_keeps_what_the_map_does_not_know() -> None:
    batch = {"input_cost_per_token_batches": 1e-06, "output_cost_per_token_batches": 4e-06}
    (change,) = compared(gpt_4o=GPT | {"output_cost_per_token": 8e-06} | batch).changes
    assert change.differs["output"] == ("10", "8")
    assert change.differs["batch"][1] == {"input": "1", "output": "4"}
    assert change.listed.capabilities == {"tools", "vision", "json_schema", "logprobs"}
    assert (change.listed.as_of, change.new) == (TODAY, False)


def test_a_model_that_we_do_not_list_is_new_and_another_providers_is_passed_over() -> None:
    above = {"input_cost_per_token_above_200k_tokens": 5e-06, "output_cost_per_token_above_200k_tokens": 2e-05}
    found = compared(
        gpt_99=GPT | above | {"source": "https://example.com/pricing", "max_input_tokens": 10},
        bedrock_x=GPT | {"litellm_provider": "bedrock"},
        whisper_9=GPT | {"mode": "audio_transcription"},
    )
    (change,) = found.changes
    assert (change.listed.name, change.new, change.listed.window_tokens) == ("openai/gpt-99", True, 10)
    assert change.listed.beyond is not None
    assert change.listed.beyond.tokens == 200_000


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"input_cost_per_token": -1e-06}, "input_cost_per_token: must not be negative"),
        ({"output_cost_per_token": None}, "output_cost_per_token: is missing, and unknown is not 0"),
        ({"output_cost_per_token": "a lot"}, "output_cost_per_token: must be a number"),
        ({"output_cost_per_token": 1.0}, "output: must be USD per 1M tokens"),
        ({"output_cost_per_token": 2e-04}, "more than 10-fold"),
        ({"input_cost_per_token": 1e-07}, "more than 10-fold"),
        ({"input_cost_per_token": 0, "output_cost_per_token": 0}, "is 0"),
        ({"output_cost_per_token": float("inf")}, "negative"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_file_and_key(facts: dict[str, Any], why: str) -> None:
    (refused,) = compared(gpt_4o=GPT | facts).refused
    assert refused.known
    assert refused.text.startswith("map.json: gpt-4o: ")
    assert why in refused.text


def test_what_is_written_is_read_back_and_used(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    first = compared(gpt_4o=GPT | {"output_cost_per_token": 8e-06}).changes
    path.write_bytes(own_file(first, (), "map.json", TODAY))
    before = load_own(path)
    assert before is not None
    path.write_bytes(own_file(compared(gpt_99=GPT).changes, before.models, "map.json", TODAY))
    catalogue = PriceBook(Catalogue.load(own=path))
    prices = {listed.name: price for listed, price in catalogue.entries()}
    assert prices["openai/gpt-4o"].output == 8_000_000
    assert prices["openai/gpt-99"].output == 10_000_000
    again = compare(Catalogue.load(own=path), {"gpt-4o": GPT | {"output_cost_per_token": 8e-06}}, "map.json", TODAY)
    assert again.changes == ()


def test_the_installed_map_is_found_without_importing_litellm() -> None:
    path = installed()
    if path is None:
        pytest.skip("litellm is not installed")
    assert "gpt-4o" in read(path)
    assert "sample_spec" not in read(path)
    assert "litellm" not in sys.modules


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"gpt-4o": 1}'])
def test_what_is_no_map_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "map.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"map\.json"):
        read(path)
