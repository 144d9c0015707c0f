"""A LiteLLM config becomes backends without sending a prompt or a key to another vendor; all else is listed by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cli.operation.from_litellm import read
from gateway.cli.operation.starter_files import Found, gateway_yaml
from gateway.settings.files import parse
from gateway.settings.gateway import GatewayConfig

VARIABLES = ("VLLM_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE", "AZURE_API_BASE", "HOSTED_VLLM_API_BASE")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "HOSTED_VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def found_in(folder: Path, text: str | dict[str, Any]) -> Found:
    """What the config has. The backends must be valid in gateway.yaml."""
    path = folder / "config.yaml"
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
    found = read(path)
    parse(gateway_yaml(found.entries), GatewayConfig, "gateway.yaml")
    return found


def one(folder: Path, params: dict[str, Any], **more: Any) -> tuple[dict[str, Any] | None, str]:
    """The backend for a single model, and the notes."""
    found = found_in(folder, {"model_list": [{"model_name": "m", "litellm_params": params, **more}]})
    return (dict(found.entries[0].values) if found.entries else None), "\n".join(found.notes)


@pytest.mark.parametrize(
    "params",
    [
        {"model": "openai/llama-3", "api_base": "os.environ/VLLM_URL"},
        {"model": "openai/llama-3", "base_url": "os.environ/VLLM_URL"},
        {"model": "llama-3", "custom_llm_provider": "openai", "api_base": "os.environ/VLLM_URL"},
        {"model": "hosted_vllm/llama-3"},
        {"model": "openai_like/llama-3"},
        {"model": "azure/deployment", "api_key": "os.environ/AZURE_KEY"},
        {"model": "openai/llama-3", "api_base": "http://user:secret@10.0.0.5/v1"},
        {"model": "openai/llama-3", "litellm_credential_name": "unknown"},
    ],
)
def test_a_model_whose_address_is_not_known_here_is_left_out_with_a_reason(
    params: dict[str, Any], tmp_path: Path
) -> None:
    backend, notes = one(tmp_path, params)
    assert backend is None
    assert "is left out" in notes
    assert "secret" not in notes


@pytest.mark.parametrize("name", VARIABLES[:2])
def test_an_address_in_a_variable_is_read_here(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://10.0.0.5:8000/v1")
    params = {"model": "openai/llama-3"} | ({"api_base": f"os.environ/{name}"} if name == "VLLM_URL" else {})
    backend, notes = one(tmp_path, params)
    assert backend is not None
    assert backend["base_url"] == "http://10.0.0.5:8000/v1"
    assert "api_key" not in backend
    assert "no key is sent" in notes


def test_addresses_that_the_config_has_elsewhere_are_used(tmp_path: Path) -> None:
    listed = [{"credential_name": "own", "credential_values": {"api_base": "http://10.0.0.5/v1", "api_key": "sk-own"}}]
    names = [("a", {"model": "openai/x", "litellm_credential_name": "own"}), ("b", {"model": "gpt-4o"})]
    models = [{"model_name": name, "litellm_params": params} for name, params in names]
    text = {"model_list": models, "credential_list": listed, "litellm_settings": {"api_base": "http://10.0.0.6/v1"}}
    found = found_in(tmp_path, text)
    assert [each.values["base_url"] for each in found.entries] == ["http://10.0.0.5/v1", "http://10.0.0.6/v1"]
    assert [each.values.get("api_key") for each in found.entries] == ["env:KEY_OF_A", None]
    assert not any("credential_list" in note or "sk-own" in note for note in found.notes)


@pytest.mark.parametrize(
    ("params", "key"),
    [
        ({"model": "hosted_vllm/x", "api_base": "http://10.0.0.5/v1"}, None),
        ({"model": "openai/x", "api_base": "http://10.0.0.5/v1"}, None),
        ({"model": "openai/x", "api_base": "http://10.0.0.5/v1", "api_key": "none"}, None),
        ({"model": "groq/x", "api_base": "http://10.0.0.5/v1"}, None),
        ({"model": "anthropic/claude-sonnet-4-6", "api_base": "http://10.0.0.5"}, None),
        ({"model": "azure/x", "api_base": "http://10.0.0.5"}, "env:KEY_OF_M"),
        ({"model": "azure/x", "api_base": "https://x.openai.azure.com"}, "env:AZURE_API_KEY"),
        ({"model": "openai/x", "api_base": "http://10.0.0.5/v1", "api_key": "os.environ/OWN"}, "env:OWN"),
        ({"model": "gpt-4o"}, "env:OPENAI_API_KEY"),
        ({"model": "openai/gpt-4o", "api_base": "https://api.openai.com/v1"}, "env:OPENAI_API_KEY"),
        ({"model": "groq/x", "api_base": "https://api.groq.com/openai/v1"}, "env:GROQ_API_KEY"),
        ({"model": "mistral/x", "api_key": "sk-in-the-file"}, "env:KEY_OF_M"),
        ({"model": "mistral/x", "api_key": 12345}, "env:KEY_OF_M"),
    ],
)
def test_a_key_goes_to_its_own_vendor_only(params: dict[str, Any], key: str | None, tmp_path: Path) -> None:
    backend, notes = one(tmp_path, params)
    assert backend is not None
    assert backend.get("api_key") == key
    assert "sk-in-the-file" not in notes
    assert (key is None) == ("no key is sent" in notes)


def test_each_key_in_the_config_has_a_variable_of_its_own(tmp_path: Path) -> None:
    keys = [
        ("a", "openai/x", "sk-1"),
        ("a", "mistral/x", "sk-2"),
        ("b.c", "openai/y", "sk-1"),
        ("b-c", "xai/z", "sk-3"),
    ]
    models = [
        {"model_name": name, "litellm_params": {"model": model, "api_key": secret}} for name, model, secret in keys
    ]
    found = found_in(tmp_path, {"model_list": models})
    assert [each.values["api_key"] for each in found.entries] == [
        "env:KEY_OF_A", "env:KEY_OF_A_2", "env:KEY_OF_A", "env:KEY_OF_B_C",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("params", "values"),
    [
        ({"model": "gemini/gemini-2.5-flash"}, {"kind": "gemini", "model": "gemini-2.5-flash"}),
        (
            {"model": "vertex_ai/gemini-2.5-pro", "vertex_project": "p", "vertex_location": "europe-west4"},
            {"kind": "vertex", "model": "gemini-2.5-pro", "project": "p", "region": "europe-west4"},
        ),
        ({"model": "vertex_ai/gemini-2.5-pro"}, {"kind": "litellm", "model": "vertex_ai/gemini-2.5-pro"}),
        ({"model": "command-r"}, {"kind": "litellm", "model": "command-r"}),
        ({"model": "o3-mini"}, {"kind": "openai", "model": "o3-mini"}),
        (
            {"model": "bedrock/converse/amazon.nova-pro-v1:0", "aws_region_name": "eu-west-1",
             "aws_bedrock_runtime_endpoint": "https://vpce-1.example"},
            {"kind": "bedrock", "model": "amazon.nova-pro-v1:0", "base_url": "https://vpce-1.example"},
        ),
        (
            {"model": "anthropic/claude-sonnet-4-6", "api_base": "https://proxy.example"},
            {"base_url": "https://proxy.example/v1"},
        ),
        (
            {"model": "gpt-4o", "input_cost_per_token": "1e-6", "output_cost_per_token": 2e-6,
             "cache_read_input_token_cost": 5e-7},
            {"price": {"input": 1.0, "output": 2.0, "cached_input": 0.5}},
        ),
    ],
)  # fmt: skip
def test_a_model_keeps_its_provider_address_and_price(
    params: dict[str, Any], values: dict[str, Any], tmp_path: Path
) -> None:
    backend, _ = one(tmp_path, params)
    assert backend is not None
    assert {key: backend[key] for key in values} == values


def test_model_info_is_taken_over_or_listed(tmp_path: Path) -> None:
    info = {"mode": "embedding", "max_input_tokens": 8192, "id": "x", "output_cost_per_token": 1e-6}
    backend, notes = one(tmp_path, {"model": "openai/text-embedding-3-small"}, model_info=info)
    assert backend is not None
    assert backend["context_window"] == 8192
    assert backend["dialects"] == ["openai_embeddings"]
    assert "price" not in backend
    assert "model_list[0].model_info.id: is not taken over" in notes
    assert "model_list[0].model_info.output_cost_per_token: is not taken over" in notes


DROPPED = """\
model_list:
  - model_name: a
    access_groups: [x]
    litellm_params:
      model: gpt-4o
      api_version: "2024-10-21"
      extra_headers:
        x-one: secret-value
router_settings:
  model_group_alias: {gpt-4: a}
  fallbacks:
    - a: [b]
    - b: [a]
general_settings:
  master_key: sk-secret-value
"""


OTHERS = "if a backend fails, the other candidates of the model's rule in the policy are called"


def test_every_other_key_is_listed_with_its_line_and_without_its_value(tmp_path: Path) -> None:
    assert found_in(tmp_path, DROPPED).notes == [
        "config.yaml:3: model_list[0].access_groups: is not taken over",
        "config.yaml:6: model_list[0].litellm_params.api_version: is not taken over",
        "config.yaml:8: model_list[0].litellm_params.extra_headers.x-one: is not taken over",
        "config.yaml:10: router_settings.model_group_alias.gpt-4: is not taken over",
        f"config.yaml:12: router_settings.fallbacks[0].a: is not taken over; {OTHERS}",
        f"config.yaml:13: router_settings.fallbacks[1].b: is not taken over; {OTHERS}",
        "config.yaml:15: general_settings.master_key: is not taken over",
    ]


def test_a_file_that_contains_itself_ends(tmp_path: Path) -> None:
    notes = found_in(tmp_path, "model_list: []\nx: &x\n  y: *x\n  z: [*x, *x]\n").notes
    assert 0 < len(notes) <= 500


AZURE = {"model": "azure/deployment", "api_base": "https://x.openai.azure.com"}


@pytest.mark.parametrize(
    ("params", "values", "note"),
    [
        ({"azure_ad_token": "os.environ/AD"}, {"bearer_token": "env:AD"}, ""),
        ({"azure_ad_token": "ey-secret"}, {"bearer_token": "env:KEY_OF_M"}, "export it as KEY_OF_M"),
        (
            {"tenant_id": "t-1", "client_id": "os.environ/APP", "client_secret": "os.environ/APP_SECRET"},
            {"auth": "entra", "tenant_id": "t-1", "client_id": "app-1", "client_secret": "env:APP_SECRET"},
            "",
        ),
        (
            {"tenant_id": "t-1", "client_id": "a", "client_secret": "inline-secret"},
            {"auth": "entra", "tenant_id": "t-1", "client_id": "a", "client_secret": "env:KEY_OF_M"},
            "its client_secret is not copied; export it as KEY_OF_M",
        ),
        ({"azure_ad_token": "os.environ/AD", "api_key": "os.environ/KEY"}, {"api_key": "env:KEY"}, "azure_ad_token"),
    ],
)
def test_identities_of_microsoft_entra_are_taken_over(
    params: dict[str, Any], values: dict[str, Any], note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP", "app-1")
    backend, notes = one(tmp_path, {**AZURE, **params})
    assert backend is not None
    secrets = ("auth", "tenant_id", "client_id", "client_secret", "bearer_token", "api_key")
    assert {key: backend[key] for key in secrets if key in backend} == values
    assert (note in notes) if note else not notes
    assert "secret-" not in notes
    assert "inline-secret" not in notes


def test_an_identity_in_a_variable_that_is_not_set_here_leaves_the_model_out(tmp_path: Path) -> None:
    backend, notes = one(tmp_path, {**AZURE, "tenant_id": "os.environ/NOT_SET_TENANT", "client_id": "a"})
    assert backend is None
    assert "its tenant_id is in NOT_SET_TENANT, which is not set here" in notes


def test_time_limits_and_calls_at_a_time_are_taken_over_and_rate_limits_listed(tmp_path: Path) -> None:
    params = {"model": "gpt-4o", "timeout": 30, "max_parallel_requests": 8, "rpm": 60, "tpm": 1000, "stream_timeout": 5}
    backend, notes = one(tmp_path, params)
    assert backend is not None
    assert (backend["timeout"], backend["max_parallel_requests"]) == ("30s", 8)
    assert [line.split(": ")[1].rpartition(".")[2] for line in notes.splitlines()] == ["rpm", "stream_timeout", "tpm"]
    assert "`limits` in its policy" in notes
    assert "`timeout` of a backend" in notes
