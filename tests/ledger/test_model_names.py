from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.domain.backend import Backend
from gateway.ledger.prices.model_names import PACKAGED, equal, grouped, model_of
from training.model_names import table

HOSTS = {"openrouter": "https://openrouter.ai/api/v1"}


def backend(name: str, kind: str, model: str, **more: Any) -> Backend:
    needed: dict[str, Any] = {
        "azure": {"base_url": "https://r.openai.azure.com", "api_key": "k"},
        "bedrock": {"region": "eu-central-1"},
        "vertex": {"region": "global", "project": "p"},
        "openai": {"base_url": "https://api.openai.com/v1"},
        "anthropic": {"base_url": "https://api.anthropic.com/v1"},
    }.get(kind, {})
    return Backend.model_validate({"name": name, "kind": kind, "model": model, **needed, **more})


def test_the_packaged_table_is_what_the_command_makes() -> None:
    assert orjson.loads(PACKAGED.read_bytes())["models"] == table()


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("anthropic", "claude-sonnet-4-5"),
        ("anthropic", "claude-sonnet-4-5-20250929"),
        ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("bedrock", "global.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("vertex", "claude-sonnet-4-5@20250929"),
        ("openrouter", "anthropic/claude-sonnet-4.5"),
    ],
)
def test_the_names_of_one_model_are_equal_at_all_vendors(kind: str, model: str) -> None:
    assert model_of(backend("b", kind, model)) == "claude-sonnet-4-5"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("openai", "gpt-4o-2024-08-06"), ("azure", "gpt-4o-2024-11-20")),
        (("openai", "gpt-4o"), ("azure", "gpt-4o-2024-11-20")),
        (("anthropic", "claude-sonnet-4-5"), ("bedrock", "anthropic.claude-sonnet-4-20250514-v1:0")),
        (("openai", "gpt-5"), ("openai", "gpt-5-mini")),
        (("groq", "llama-3.3-70b-versatile"), ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo")),
        (("gemini", "gemini-flash-latest"), ("vertex", "gemini-2.5-flash")),
    ],
)
def test_other_snapshots_and_open_models_are_not_equal(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert equal([backend("one", *one), backend("other", *other)]) == {}


def test_a_server_that_is_not_the_vendors_is_in_no_group() -> None:
    own = backend("own", "openai", "gpt-5-mini", base_url="http://10.0.0.1/v1")
    assert equal([own, backend("azure", "azure", "gpt-5-mini")]) == {}


def test_groups_are_made_only_if_asked_for_and_an_own_group_stays() -> None:
    direct, cloud = backend("direct", "openai", "gpt-5-mini"), backend("cloud", "azure", "gpt-5-mini")
    other = backend("other", "openai", "gpt-5-mini", model_group="mine")
    assert [each.model_group for each in grouped([direct, cloud, other], "named")] == ["", "", "mine"]
    assert [each.model_group for each in grouped([direct, cloud, other], "auto")] == ["gpt-5-mini"] * 2 + ["mine"]
    assert list(equal([direct, cloud, other])) == ["gpt-5-mini"]


def test_a_model_with_the_name_of_a_backend_gets_no_group() -> None:
    named, cloud = backend("gpt-5-mini", "openai", "gpt-5-mini"), backend("cloud", "azure", "gpt-5-mini")
    assert [each.model_group for each in grouped([named, cloud], "auto")] == ["", ""]
