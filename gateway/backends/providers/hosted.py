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
    """A hosted provider, with one cheap and one strong model. The catalogue has the models' capabilities."""

    kind: Kind
    base_url: str
    models: tuple[str, ...]
    plain_names: bool = False
    """Whether backends are named by the bare model name, as applications use it."""
    prefix: str = ""
    """Prefix of a model's name for litellm."""
    without_litellm: str = ""
    """Base URL of an OpenAI-compatible endpoint, used if litellm is not installed."""


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
"""Providers with OpenAI's or Anthropic's dialect are called directly, the others through litellm.

Cohere is called directly because litellm (1.106) cannot read the streams of its own dialect.
"""

_LATER_LIMIT = ("api.openai.com", ".api.openai.com", ".openai.azure.com", ".services.ai.azure.com")
"""Hosts whose reasoning models reject `max_tokens`. A leading dot stands for any subdomain."""
_OPENAIS = re.compile(r"(?:^|/)(?:gpt-(?!oss)|chatgpt-|codex|o\d)")
"""OpenAI's models, perhaps behind a proxy. They reject requests with both limit fields."""
_EARLIER_LIMIT = ("api.mistral.ai", "api.deepseek.com", "api.together.xyz", "api.cohere.ai", "openrouter.ai")
"""Hosts that accept `max_tokens`; some of them reject unknown fields."""


def limit_fields(backend: Backend) -> tuple[str, ...]:
    """The names of the output limit field in OpenAI's chat dialect that `backend` accepts.

    An unknown server gets both: it ignores the one that it does not know.
    """
    if known := backend.facts.limits_per_answer:
        return known
    host = urlsplit(backend.base_url).hostname or ""
    if _is_one_of(host, _LATER_LIMIT) or _OPENAIS.search(backend.model.lower()):
        return ("max_completion_tokens",)
    return ("max_tokens",) if _is_one_of(host, _EARLIER_LIMIT) else ("max_completion_tokens", "max_tokens")


def refuses_foreign_fields(backend: Backend) -> bool:
    """Whether this is OpenAI's own API, which rejects `cache_control` in messages. Resellers and proxies accept it."""
    return backend.facts.strict or _is_one_of(urlsplit(backend.base_url).hostname or "", _LATER_LIMIT)


def _is_one_of(host: str, known: tuple[str, ...]) -> bool:
    return any(host == each or (each[0] == "." and host.endswith(each)) for each in known)
