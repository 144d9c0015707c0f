"""Kinds that are a row of the table: address, key, fields and prices of each vendor with OpenAI's API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest
from pydantic import SecretStr

from gateway.backends.fleet import KINDS as MODULES
from gateway.backends.providers.hosted import chat_rules, limit_fields, refuses_foreign_fields, vendor
from gateway.dialects.registry import translators
from gateway.domain.backend import Backend
from gateway.domain.kinds import KINDS, Kind, Preset
from gateway.domain.routing.whereabouts import providers_own
from gateway.errors import BadRequest
from gateway.ledger.prices.catalogue import PACKAGED, Catalogue
from gateway.settings.environment import PROVIDER_KEYS
from gateway.settings.files import ConfigError
from gateway.settings.gateway import load_settings
from tests.backends.conftest import KEY, CallerOf
from tests.docs.markdown import ROOT, table
from tests.fakes.caller import read
from tests.fakes.provider import Provider, Reply
from tests.support.requests import chat_request

PRESETS: tuple[str, ...] = get_args(Preset)
MODELS = {
    "mistral": "mistral-large-latest",
    "groq": "openai/gpt-oss-120b",
    "deepseek": "deepseek-v4-pro",
    "xai": "grok-4.3",
    "together": "openai/gpt-oss-120b",
    "cohere": "command-a-03-2025",
    "gemini_openai": "gemini-2.5-flash",
    "openrouter": "openai/gpt-4o-mini",
}
"""A model of each vendor that the price list has."""


def preset(kind: str, **changes: Any) -> Backend:
    return Backend.model_validate({"name": "b", "kind": kind, "model": MODELS.get(kind, "m"), **changes})


def test_every_kind_has_facts_and_a_module_that_calls_it() -> None:
    assert {name for each in get_args(Kind) for name in (get_args(each) or (each,))} == set(KINDS)
    assert {facts.preset_of or kind for kind, facts in KINDS.items()} == set(MODULES)
    assert {kind for kind, facts in KINDS.items() if facts.preset_of} == set(PRESETS)


@pytest.mark.parametrize("kind", PRESETS)
def test_a_preset_knows_its_address_and_whose_machines_are_there(kind: str) -> None:
    backend = preset(kind)
    assert backend.base_url == KINDS[kind].base_url
    assert backend.hosted
    assert providers_own(backend.base_url)
    assert preset(kind, base_url="http://10.0.0.5/v1").base_url == "http://10.0.0.5/v1"
    assert preset(kind, base_url="http://10.0.0.5/v1").api_key is None, "a proxy may need no key"


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_has_its_vendors_price_also_behind_a_proxy(kind: str) -> None:
    catalogue = Catalogue.load(PACKAGED)
    listed, proxied = [catalogue.find(preset(kind, **at)) for at in ({}, {"base_url": "http://10.0.0.5/v1"})]
    assert listed is not None
    assert proxied is not None
    assert listed.name == proxied.name
    assert listed.provider == (KINDS[kind].prices or "openai")


@pytest.mark.parametrize("kind", [kind for kind in PRESETS if KINDS[kind].key])
def test_the_key_is_found_in_the_environment(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(f"backends:\n  - {{name: a, kind: {kind}, model: m}}\n")
    assert KINDS[kind].key in PROVIDER_KEYS.values()
    monkeypatch.delenv(KINDS[kind].key, raising=False)
    with pytest.raises(ConfigError, match=KINDS[kind].key):
        load_settings(config, data_dir=tmp_path)
    monkeypatch.setenv(KINDS[kind].key, "sk-1")
    (backend,) = load_settings(config, data_dir=tmp_path).config.backends or ()
    assert backend.api_key is not None
    assert backend.api_key.get_secret_value() == "sk-1"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", PRESETS)
async def test_a_vendor_gets_the_key_and_only_fields_that_it_takes(
    kind: str, stream: bool, small: Provider, caller_of: CallerOf
) -> None:
    backend = preset(kind, base_url=small.url, api_key=SecretStr(KEY), max_output_tokens=100)
    asked = chat_request(stream=stream, max_completion_tokens=500, store=False, user="u", prompt_cache_key="k", seed=7)
    small.script(Reply(tokens=3))
    answer = await caller_of(backend).call(asked)
    await read(answer)
    sent, facts = small.last.json, KINDS[kind]
    assert dict(small.last.headers)[b"authorization"] == b"Bearer " + KEY.encode()
    assert sent[facts.rules.renames.get("seed", "seed")] == 7
    assert not (facts.rules.leaves_out | facts.rules.renames.keys()) & sent.keys()
    assert sent[facts.limits_per_answer[0]] == 100
    assert ("max_completion_tokens" in sent) == (kind != "mistral")
    assert ("stream_options" in sent) == (stream and kind != "mistral")


async def test_numbers_and_texts_keep_their_bytes_where_a_field_is_left_out(
    small: Provider, caller_of: CallerOf
) -> None:
    backend = preset("mistral", base_url=small.url, api_key=SecretStr(KEY))
    asked = chat_request("größe \\ \u2028", store=True, temperature=0.10, max_completion_tokens=9)
    await read(await caller_of(backend).call(asked))
    assert small.last.json == {
        **{name: value for name, value in asked.body.items() if name not in ("store", "max_completion_tokens")},
        "model": backend.model,
        "max_tokens": 9,
    }
    assert orjson.loads(small.last.body) == small.last.json


def sent_by(kind: str, model: str, **fields: Any) -> dict[str, Any]:
    """The body that a backend of `kind` gets for a chat request."""
    backend = preset(kind, model=model)
    (way, *_) = translators(
        "openai_chat",
        ("openai_chat",),
        limits=limit_fields(backend),
        strict=refuses_foreign_fields(backend),
        rules=chat_rules(backend),
    )
    found: dict[str, Any] = orjson.loads(way.body(chat_request(**fields), model, None))
    return found


def test_mistral_gets_only_the_fields_and_ids_of_its_schema() -> None:
    call = {"id": "toolu_01AbCdEfGh", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    kept = {**call, "id": "aB3dE6gH9"}
    own = {"role": "assistant", "content": "x", "tool_calls": [kept]}
    messages = [
        {"role": "developer", "content": "brief"},
        {"role": "user", "name": "bob", "content": "a"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "refusal": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "r", "name": "f"},
        {"role": "assistant", "content": None, "refusal": "no"},
        own,
    ]
    sent = sent_by("mistral", "mistral-large-latest", messages=messages, seed=7, logit_bias={"9": 1}, logprobs=False)
    system, user, called, result, refused, last = sent["messages"]
    assert system == {"role": "system", "content": "brief"}
    assert (user, refused) == ({"role": "user", "content": "a"}, {"role": "assistant", "content": "no"})
    assert called.keys() == {"role", "content", "tool_calls"}
    assert re.fullmatch("[a-zA-Z0-9]{9}", called["tool_calls"][0]["id"])
    assert result == {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "r", "name": "f"}
    assert last == own
    assert (sent["random_seed"], {"seed", "logit_bias", "logprobs"} & sent.keys()) == (7, set())


def test_groq_gets_no_field_that_it_refuses() -> None:
    messages = [{"role": "user", "name": "bob", "content": "a"}]
    sent = sent_by("groq", "openai/gpt-oss-120b", messages=messages, logprobs=False, logit_bias={"9": 1}, n=1, seed=7)
    assert sent == {"model": "openai/gpt-oss-120b", "messages": [{"role": "user", "content": "a"}], "seed": 7}


@pytest.mark.parametrize(
    ("kind", "model", "fields"),
    [
        ("groq", "openai/gpt-oss-120b", {"n": 2}),
        ("groq", "openai/gpt-oss-120b", {"logprobs": True}),
        ("mistral", "mistral-large-latest", {"logprobs": True}),
        ("xai", "grok-4.3", {"stop": ["x"]}),
    ],
)
def test_a_field_that_shapes_the_answer_and_is_refused_is_a_400(kind: str, model: str, fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        sent_by(kind, model, **fields)
    assert refused.value.param == next(iter(fields))


@pytest.mark.parametrize(
    ("model", "thinks"),
    [("grok-4", True), ("grok-4.20-reasoning", True), ("grok-4-fast-non-reasoning", False), ("grok-3", False)],
)
def test_groks_that_think_get_no_penalties(model: str, thinks: bool) -> None:
    sent = sent_by("xai", model, presence_penalty=0.5, frequency_penalty=0.5)
    assert ({"presence_penalty", "frequency_penalty"} <= sent.keys()) != thinks
    assert thinks or sent_by("xai", model, stop=["x"])["stop"] == ["x"]


@pytest.mark.parametrize("kind", [kind for kind in PRESETS if KINDS[kind].key])
def test_kind_openai_at_a_vendors_address_has_that_vendors_ways(kind: str) -> None:
    backend = Backend(name="b", kind="openai", base_url=KINDS[kind].base_url, model="m")
    assert vendor(backend) is KINDS[kind]
    assert limit_fields(backend) == KINDS[kind].limits_per_answer
    assert refuses_foreign_fields(backend) == KINDS[kind].strict


def test_the_page_has_a_line_for_each_preset() -> None:
    def code(values: list[str]) -> str:
        return ", ".join(f"`{value}`" for value in values)

    rows = table("presets", ROOT / "docs" / "how-to" / "providers.md")
    assert [tuple(row) for row in rows] == [
        (
            f"`{kind}`",
            f"`{facts.base_url}`",
            code([facts.key] if facts.key else []),
            code(sorted(facts.rules.leaves_out)),
        )
        for kind, facts in ((kind, KINDS[kind]) for kind in PRESETS)
    ]
