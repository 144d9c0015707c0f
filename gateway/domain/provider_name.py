"""Finds the provider of a backend from its settings, and names it as OpenTelemetry does (`gen_ai.provider.name`).

The names are the well-known values of OpenTelemetry's semantic conventions for generative AI, read 2026-11. A provider
without a well-known value gets the name that LiteLLM uses. An unknown server gets the name `_OTHER`, because any server
may use OpenAI's dialect.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gateway.domain.kinds import KINDS
from gateway.domain.routing.whereabouts import host_of

UNKNOWN = "_OTHER"
"""OpenTelemetry's value for anything that has no other value."""

_HOSTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?:.+\.)?(?:{domains})"), name)
    for domains, name in (
        (r"openai\.azure\.(?:com|us)|cognitiveservices\.azure\.com", "azure.ai.openai"),
        (r"ai\.azure\.com", "azure.ai.inference"),
        (r"openai\.com", "openai"),
        (r"anthropic\.com|claude\.com", "anthropic"),
        (r"(?:[^.]+-)?aiplatform\.googleapis\.com", "gcp.vertex_ai"),
        (r"generativelanguage\.googleapis\.com", "gcp.gemini"),
        (r"bedrock(?:-[a-z]+)*(?:\.[a-z0-9-]+)?\.(?:amazonaws\.com(?:\.cn)?|api\.aws)", "aws.bedrock"),
        (r"watsonx\.ai|ml\.cloud\.ibm\.com", "ibm.watsonx.ai"),
        (r"mistral\.ai", "mistral_ai"),
        (r"groq\.com", "groq"),
        (r"deepseek\.com", "deepseek"),
        (r"x\.ai", "x_ai"),
        (r"cohere\.(?:ai|com)", "cohere"),
        (r"perplexity\.ai", "perplexity"),
        (r"moonshot\.(?:ai|cn)", "moonshot_ai"),
        (r"openrouter\.ai", "openrouter"),
        (r"together\.(?:ai|xyz)", "together_ai"),
        (r"fireworks\.ai", "fireworks_ai"),
        (r"cerebras\.ai", "cerebras"),
        (r"sambanova\.ai", "sambanova"),
        (r"deepinfra\.com", "deepinfra"),
        (r"huggingface\.(?:co|cloud)", "huggingface"),
        (r"api\.nvidia\.com", "nvidia_nim"),
        (r"databricks\.com|azuredatabricks\.net", "databricks"),
    )
)
"""(Pattern of a domain and its subdomains, provider). The first match counts."""
_PREFIXES = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "bedrock_converse": "aws.bedrock",
    "codestral": "mistral_ai",
    "cohere_chat": "cohere",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "vertex_ai_beta": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""litellm's prefix of a model name → OpenTelemetry's name of the provider, if the names differ."""
_OF_KIND = {"local": "local", "simulated": "simulated", "azure": "azure.ai.openai"}
"""Kind of backend → provider, for kinds whose provider does not depend on the address."""
_ANY_SERVER = frozenset({"openai", "custom_openai", "openai_like", "text-completion-openai", "anthropic"})
"""Prefixes that name only a dialect if the backend has a base URL too, because any server may speak that dialect."""
_PREFIX = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_OWN_NAMES = ((re.compile(r"gpt-(?!oss)|chatgpt-|o\d"), "openai"), (re.compile(r"claude-"), "anthropic"))
"""(Pattern of a model name, provider). The names are those that litellm accepts without a prefix."""


@lru_cache(maxsize=4096)
def provider_name(kind: str, base_url: str, model: str) -> str:
    """The name of the backend's provider. For the kinds `local` and `simulated`, the name is the kind itself."""
    if kind in _OF_KIND:
        return _OF_KIND[kind]
    if base_url:
        if found := _of_address(base_url):
            return found
        if kind != "litellm":
            return KINDS[kind].provider or UNKNOWN
    return _of_litellm(model, addressed=bool(base_url))


def _of_address(base_url: str) -> str:
    host = host_of(base_url)
    for domains, name in _HOSTS:
        if domains.fullmatch(host):
            # Azure also serves OpenAI's models at its newer addresses, under a separate path.
            return "azure.ai.openai" if name == "azure.ai.inference" and "/openai" in base_url else name
    return ""


def _of_litellm(model: str, *, addressed: bool) -> str:
    prefix, slash, _ = model.partition("/")
    if not slash:
        known = (name for pattern, name in _OWN_NAMES if pattern.match(model))
        return UNKNOWN if addressed else next(known, UNKNOWN)
    if addressed and prefix in _ANY_SERVER:
        return UNKNOWN
    return _PREFIXES.get(prefix) or (prefix if _PREFIX.fullmatch(prefix) else UNKNOWN)
