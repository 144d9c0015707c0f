"""Hosted providers as they are used when only their key is known: where, in which dialect, which models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.domain.backend import Kind


@dataclass(frozen=True, slots=True)
class Provider:
    """One cheap and one strong model are enough to save money with; the catalogue knows what they can do."""

    kind: Kind
    base_url: str
    models: tuple[str, ...]
    plain_names: bool = False
    """Are its models called by their own names, as applications already do?"""
    prefix: str = ""
    """What litellm wants before a model's name."""
    without_litellm: str = ""
    """A base URL that speaks OpenAI's dialect well enough where litellm is not installed."""


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider("openai", "https://api.openai.com/v1", ("gpt-4o-mini", "gpt-4o"), plain_names=True),
    "anthropic": Provider(
        "anthropic", "https://api.anthropic.com/v1", ("claude-haiku-4-5", "claude-sonnet-4-6"), plain_names=True
    ),
    "mistral": Provider("openai", "https://api.mistral.ai/v1", ("mistral-small-latest", "mistral-large-latest")),
    "groq": Provider("openai", "https://api.groq.com/openai/v1", ("openai/gpt-oss-20b", "openai/gpt-oss-120b")),
    "openrouter": Provider(
        "openai", "https://openrouter.ai/api/v1", ("openai/gpt-4o-mini", "anthropic/claude-sonnet-4.6")
    ),
    "deepseek": Provider("openai", "https://api.deepseek.com/v1", ("deepseek-v4-flash", "deepseek-v4-pro")),
    "xai": Provider("openai", "https://api.x.ai/v1", ("grok-4.3",)),
    "together_ai": Provider("openai", "https://api.together.xyz/v1", ("openai/gpt-oss-120b",)),
    "gemini": Provider(
        "litellm",
        "",
        ("gemini-2.5-flash", "gemini-2.5-pro"),
        prefix="gemini/",
        without_litellm="https://generativelanguage.googleapis.com/v1beta/openai",
    ),
    "cohere": Provider(
        "openai", "https://api.cohere.ai/compatibility/v1", ("command-r7b-12-2024", "command-a-03-2025")
    ),
}
"""Those that speak OpenAI's or Anthropic's dialect are called directly, the others through litellm.

Cohere is called directly because litellm (1.106) cannot read the streams of its own dialect.
"""
