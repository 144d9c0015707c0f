"""Whose a backend is, in OpenTelemetry's words."""

from __future__ import annotations

import pytest

from gateway.backends.providers.hosted import PROVIDERS
from gateway.domain.backend import Backend
from gateway.domain.provider_name import UNKNOWN, provider_name


@pytest.mark.parametrize(
    ("kind", "base_url", "name"),
    [
        ("openai", "https://api.openai.com/v1", "openai"),
        ("openai", "https://eu.api.openai.com/v1", "openai"),
        ("openai", "https://ours.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("openai", "https://ours.services.ai.azure.com/openai/v1", "azure.ai.openai"),
        ("openai", "https://ours.services.ai.azure.com/models", "azure.ai.inference"),
        ("anthropic", "https://api.anthropic.com/v1", "anthropic"),
        ("openai", "https://generativelanguage.googleapis.com/v1beta/openai", "gcp.gemini"),
        ("anthropic", "https://europe-west1-aiplatform.googleapis.com/v1", "gcp.vertex_ai"),
        ("openai", "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "aws.bedrock"),
        ("openai", "https://api.x.ai/v1", "x_ai"),
        ("openai", "https://API.MISTRAL.AI./v1", "mistral_ai"),
        ("openai", "https://api.moonshot.ai/v1", "moonshot_ai"),
        ("openai", "http://127.0.0.1:8000/v1", UNKNOWN),
        ("openai", "https://api.openai.com.example.org/v1", UNKNOWN),
        ("anthropic", "https://llm.example.org/api.anthropic.com", UNKNOWN),
        ("local", "http://127.0.0.1:8000/v1", "local"),
        ("simulated", "", "simulated"),
    ],
)
def test_a_backend_is_named_by_its_address_not_by_the_dialect_it_speaks(kind: str, base_url: str, name: str) -> None:
    assert provider_name(kind, base_url, "a-model") == name


@pytest.mark.parametrize(
    ("model", "base_url", "name"),
    [
        ("gemini/gemini-2.5-flash", "", "gcp.gemini"),
        ("vertex_ai/claude-sonnet-4-6", "", "gcp.vertex_ai"),
        ("bedrock/anthropic.claude-v2", "", "aws.bedrock"),
        ("azure/our-deployment", "https://ours.openai.azure.com", "azure.ai.openai"),
        ("openai/gpt-4o", "", "openai"),
        ("openai/whatever", "http://127.0.0.1:8000/v1", UNKNOWN),
        ("hosted_vllm/qwen", "http://127.0.0.1:8000/v1", "hosted_vllm"),
        ("groq/openai/gpt-oss-20b", "", "groq"),
        ("gpt-4o", "", "openai"),
        ("claude-haiku-4-5", "", "anthropic"),
        ("gpt-4o", "http://127.0.0.1:8000/v1", UNKNOWN),
        ("gpt-oss-20b", "", UNKNOWN),
        ("Some One/model", "", UNKNOWN),
    ],
)
def test_behind_litellm_the_model_names_the_provider(model: str, base_url: str, name: str) -> None:
    assert provider_name("litellm", base_url, model) == name


def test_every_provider_that_is_set_up_by_its_key_has_a_name() -> None:
    found = {
        key: Backend(
            name="b",
            kind=each.kind,
            base_url=each.base_url,
            model=each.prefix + each.models[0],
        ).provider_name
        for key, each in PROVIDERS.items()
    }
    renamed = {"mistral": "mistral_ai", "xai": "x_ai", "gemini": "gcp.gemini"}
    assert found == {key: renamed.get(key, key) for key in PROVIDERS}
