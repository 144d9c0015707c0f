"""Known hosted providers: address, dialect and default models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.domain.backend import Backend
from gateway.domain.chat_rules import ChatRules
from gateway.domain.kinds import KINDS, Kind, KindFacts


@dataclass(frozen=True, slots=True)
class Provider:
    """A hosted provider, with one cheap and one strong model. The capabilities of the models are in the catalogue of
    models."""

    kind: Kind
    base_url: str
    models: tuple[str, ...]
    plain_names: bool = False
    """Whether the backends are named exactly as their models. Applications use these names."""
    prefix: str = ""
    """The prefix that litellm needs before the name of a model."""
    without_litellm: Kind | None = None
    """The kind that is used if litellm is not installed."""


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider("openai", "https://api.openai.com/v1", ("gpt-4o-mini", "gpt-4o"), plain_names=True),
    "anthropic": Provider(
        "anthropic", "https://api.anthropic.com/v1", ("claude-haiku-4-5", "claude-sonnet-4-6"), plain_names=True
    ),
    "mistral": Provider("mistral", KINDS["mistral"].base_url, ("mistral-small-latest", "mistral-large-latest")),
    "groq": Provider("groq", KINDS["groq"].base_url, ("openai/gpt-oss-20b", "openai/gpt-oss-120b")),
    "openrouter": Provider(
        "openrouter", KINDS["openrouter"].base_url, ("openai/gpt-4o-mini", "anthropic/claude-sonnet-4.6")
    ),
    "deepseek": Provider("deepseek", KINDS["deepseek"].base_url, ("deepseek-v4-flash", "deepseek-v4-pro")),
    "xai": Provider("xai", KINDS["xai"].base_url, ("grok-4.3",)),
    "together_ai": Provider("together", KINDS["together"].base_url, ("openai/gpt-oss-120b",)),
    "gemini": Provider(
        "litellm",
        "",
        ("gemini-2.5-flash", "gemini-2.5-pro"),
        prefix="gemini/",
        without_litellm="gemini_openai",
    ),
    "cohere": Provider("cohere", KINDS["cohere"].base_url, ("command-r7b-12-2024", "command-a-03-2025")),
}
"""The known hosted providers. Providers with OpenAI's or Anthropic's dialect are called directly, the others through
litellm.

Cohere is called directly, with OpenAI's dialect, because litellm (1.106) cannot read streams in Cohere's own dialect.
"""

_LATER_LIMIT = ("api.openai.com", ".api.openai.com", ".openai.azure.com", ".services.ai.azure.com")
"""Hosts whose reasoning models reject `max_tokens`. A leading dot means any subdomain of the host."""
_OPENAIS_OWN = _LATER_LIMIT[:2]
_OPENAIS = re.compile(r"(?:^|/)(?:gpt-(?!oss)|chatgpt-|codex|o\d)")
"""Matches the names of OpenAI's models, which may also be behind a proxy. These models reject requests with both
`max_tokens` and `max_completion_tokens`."""
_OF_HOST = {urlsplit(facts.base_url).hostname: facts for facts in KINDS.values() if facts.key}
"""Host of a vendor → facts about the vendor's API. Used if an entry of `kind: openai` has the address of this vendor.
"""


def limit_fields(backend: Backend) -> tuple[str, ...]:
    """The names of the output limit field that `backend` accepts in OpenAI's chat dialect. An unknown server gets both
    names."""
    if known := vendor(backend).limits_per_answer:
        return known
    host = urlsplit(backend.base_url).hostname or ""
    later = _is_one_of(host, _LATER_LIMIT) or _OPENAIS.search(backend.model.lower())
    return ("max_completion_tokens",) if later else ("max_completion_tokens", "max_tokens")


def vendor(backend: Backend) -> KindFacts:
    """The facts about the API of `backend`, found by the kind of `backend` or, for `kind: openai`, by the host."""
    return (
        _OF_HOST.get(urlsplit(backend.base_url).hostname, backend.facts) if backend.kind == "openai" else backend.facts
    )


def chat_rules(backend: Backend) -> ChatRules:
    """The rules in which the chat API of `backend` differs from OpenAI's. The rules may depend on the model."""
    facts, model = vendor(backend), backend.sent_model.lower()
    return next((rules for pattern, rules in facts.rules_of_models if re.search(pattern, model)), facts.rules)


def refuses_foreign_fields(backend: Backend) -> bool:
    """Whether `backend` rejects message fields that OpenAI's API does not know, such as `cache_control`. Resellers and
    proxies usually accept them."""
    return vendor(backend).strict or _is_one_of(urlsplit(backend.base_url).hostname or "", _LATER_LIMIT)


def obfuscates(backend: Backend) -> bool:
    """Whether `backend` is OpenAI's own API, which adds random texts to its events. The request field that switches
    this off is sent only there, because other servers may refuse the field."""
    return _is_one_of(urlsplit(backend.base_url).hostname or "", _OPENAIS_OWN)


def _is_one_of(host: str, known: tuple[str, ...]) -> bool:
    return any(host == each or (each[0] == "." and host.endswith(each)) for each in known)
