"""Known hosted providers: address, dialect and default models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.domain.backend import Backend
from gateway.domain.kinds import Kind


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

_LATER_LIMIT = ("api.openai.com", ".api.openai.com", ".openai.azure.com", ".services.ai.azure.com")
"""Hosts whose reasoning models refuse `max_tokens`; a leading dot: any subdomain."""
_OPENAIS = re.compile(r"(?:^|/)(?:gpt-(?!oss)|chatgpt-|codex|o\d)")
"""Its models, perhaps behind somebody's proxy: they refuse both names at once."""
_EARLIER_LIMIT = ("api.mistral.ai", "api.deepseek.com", "api.together.xyz", "api.cohere.ai", "openrouter.ai")
"""Hosts that know `max_tokens`, and of which some refuse what they do not know."""


def limit_fields(backend: Backend) -> tuple[str, ...]:
    """What OpenAI's chat dialect calls the most tokens of an answer where `backend` is.

    A server that nobody knows is told both: one that knows a single name passes over the other.
    """
    if known := backend.facts.limits_per_answer:
        return known
    host = urlsplit(backend.base_url).hostname or ""
    if _is_one_of(host, _LATER_LIMIT) or _OPENAIS.search(backend.model.lower()):
        return ("max_completion_tokens",)
    return ("max_tokens",) if _is_one_of(host, _EARLIER_LIMIT) else ("max_completion_tokens", "max_tokens")


def _is_one_of(host: str, known: tuple[str, ...]) -> bool:
    return any(host == each or (each[0] == "." and host.endswith(each)) for each in known)
