"""Facts about each kind of backend that other packages need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from gateway.domain.chat_rules import NO_RULES, ChatRules

Own = Literal[
    "openai", "anthropic", "azure", "local", "litellm", "simulated", "bedrock", "gemini", "vertex", "thriftgate",
    "litellm_proxy", "ollama",
]  # fmt: skip
"""Kinds that have a module in `backends/providers/`."""
Preset = Literal["openrouter", "mistral", "groq", "deepseek", "xai", "together", "cohere", "gemini_openai"]
"""Kinds of backends that have OpenAI's API at another address. They are rows of `KINDS` below and have no module."""
Kind = Literal[Own, Preset]

BackendDialectName = Literal[
    "openai_chat",
    "openai_completions",
    "openai_responses",
    "openai_embeddings",
    "openai_other",
    "anthropic_messages",
    "gemini_generate",
    "bedrock_converse",
    "ollama_chat",
]
"""Dialects that backends speak."""

_CHAT: tuple[BackendDialectName, ...] = ("openai_chat", "openai_embeddings", "openai_other")
_BOOKKEEPING = frozenset({"store", "metadata", "prompt_cache_key", "safety_identifier", "service_tier"})
"""Fields of chat requests that do not change the answer, and that servers with strict schemas refuse."""
_OPENAIS: tuple[BackendDialectName, ...] = (
    "openai_chat",
    "openai_responses",
    "openai_completions",
    "openai_embeddings",
    "openai_other",
)


@dataclass(frozen=True, slots=True)
class KindFacts:
    """The facts about one kind of backend. A kind in `Own` also has a module in `backends/providers/`. A preset (a
    vendor that has OpenAI's API) has none.
    """

    dialects: tuple[BackendDialectName, ...]
    """The dialects that servers of this kind may speak, the kind's own dialect first. Servers that speak OpenAI's
    dialect differ in their further dialects."""
    needs_base_url: bool = False
    why_hosted: str = ""
    """Why prompts to this kind leave the operator's machines, whatever the address is. Empty if that depends on the
    address."""
    calls_others: bool = False
    """Whether servers of this kind pass prompts on, so that a private address does not show where prompts end. They
    count as hosted unless their `location` is `local`."""
    own_machine: bool = False
    """Whether a backend of this kind runs on this machine unless its `location` is set."""
    requires_max_tokens: bool = False
    """Whether the API refuses requests without an output limit."""
    caches_marked_only: bool = False
    """Whether the prompt cache of this kind stores only marked parts of a prompt and reports how much was marked."""
    limits_per_answer: tuple[str, ...] = ()
    """The fields of a chat request that limit the output tokens. Empty if address and model determine the fields."""
    strict: bool = False
    """Whether the API refuses fields of chat messages that only Anthropic's API has. If False, the address determines
    this."""
    addressed_by: str = "`base_url` and `model`"
    """The settings to check when the server answers 404, because path or model is unknown."""
    prefix_names_provider: bool = False
    """Whether the prefix of a model's name determines which provider is called."""
    preset_of: str = ""
    """The kind whose module a preset uses. Empty if the kind has a module of its own."""
    base_url: str = ""
    """The address that is used if the entry of a backend has none."""
    key: str = ""
    """The environment variable with the API key. It is used if the entry of a backend has neither a key nor an
    address."""
    prices: str = ""
    """The provider in the price list, whatever the address is. Empty if address and model determine the provider."""
    provider: str = ""
    """The provider's name in OpenTelemetry's conventions. Empty if the address determines it."""
    rules: ChatRules = NO_RULES
    """The differences between the kind's chat API and OpenAI's."""
    rules_of_models: tuple[tuple[str, ChatRules], ...] = ()
    """(Pattern that matches names of models, rules for these models). The first match replaces `rules`."""
    beside_name: str = ""
    """A pattern that matches the additional text in this kind's model names, before or after the public name of a
    model."""
    regional_factor: Decimal | None = None
    """Factor on all prices if neither `region` nor model says `global`. None if prices do not depend on the region."""
    key_header: str = ""
    """The header of the API key. Empty: the key is sent as a bearer token."""
    settings: tuple[str, ...] = ()
    """The settings of a backend that only backends of this kind have."""
    tells_cost: str = ""
    """The header of answers that has their cost, which replaces this gateway's own prices in the ledger. Empty: answers
    have no such header."""
    bills_in_usage: bool = False
    """Whether `usage.cost` of answers is what the provider bills. It replaces this gateway's own prices in the
    ledger."""
    no_quota: str = ""
    """The type of an error which says that the gateway's account at the server has no money left, whatever the status
    is."""
    of_claude: KindFacts | None = None
    """The facts for models of Anthropic, if these facts differ. Otherwise None."""
    at_v1: KindFacts | None = None
    """The facts for addresses that end in `/v1`, if the server speaks another dialect there. Otherwise None."""


def _preset(base_url: str, *, dialects: tuple[BackendDialectName, ...] = _CHAT, **facts: Any) -> KindFacts:
    """The facts about a vendor that has OpenAI's API at a known address."""
    return KindFacts(dialects, needs_base_url=True, preset_of="openai", base_url=base_url, **facts)


_BEDROCK = KindFacts(
    ("bedrock_converse",),
    needs_base_url=True,
    base_url="https://bedrock-runtime.{region}.amazonaws.com",
    why_hosted="AWS runs it, whatever location says",
    provider="aws.bedrock",
    caches_marked_only=True,
    addressed_by="`region` and `model`",
    settings=("aws_profile",),
    beside_name=r"^(?:arn:[^/]*/)?(?:[a-z-]+\.)?anthropic\.|-v\d+(?::\w+)*$",
)
_REGIONAL = Decimal("1.1")
"""Factor on Claude's prices in a region of a cloud, from Sonnet 4.5 and Haiku 4.5 on. For earlier models the computed
cost is too high. Public price tools list 10 %. The vendors' pages were not checked, so a team that has an invoice
should compare the invoice with this factor."""
_VERTEX = KindFacts(
    ("gemini_generate",),
    needs_base_url=True,
    base_url="https://{region}-aiplatform.googleapis.com",
    why_hosted="Google runs it, whatever location says",
    provider="gcp.vertex_ai",
    addressed_by="`project`, `region` and `model`",
    key_header="x-goog-api-key",
    settings=("project", "google_credentials"),
)
_MISTRAL = ChatRules(
    # streams of this kind always end with their usage
    leaves_out=_BOOKKEEPING | {"stream_options", "user", "logit_bias", "top_logprobs"},
    refuses=frozenset({"logprobs"}),
    renames={"seed": "random_seed"},
    of_role={
        "system": frozenset({"role", "content"}),
        "user": frozenset({"role", "content"}),
        "assistant": frozenset({"role", "content", "tool_calls", "prefix"}),
        "tool": frozenset({"role", "content", "tool_call_id", "name"}),
    },
    call_id="[a-zA-Z0-9]{9}",
)
"""The API accepts only the fields of its reference (https://docs.mistral.ai/api/endpoint/chat). The form of ids is that
of Mistral's own validator (`mistral_common`)."""
_GROQ = ChatRules(
    leaves_out=(_BOOKKEEPING - {"service_tier"}) | {"logit_bias", "top_logprobs"},
    refuses=frozenset({"logprobs", "n"}),
    not_in_messages=frozenset({"name"}),
)
"""https://console.groq.com/docs/openai#currently-unsupported-openai-features"""
_GROK_THINKS = r"grok-(?:[4-9]|3-mini|code|build)(?!.*non-reasoning)"
_GROK = ChatRules(
    leaves_out=frozenset({"presence_penalty", "frequency_penalty"}),
    refuses=frozenset({"stop"}),
)
"""For xAI's reasoning models. https://docs.x.ai/docs/guides/reasoning"""
KINDS: Mapping[str, KindFacts] = {
    "openai": KindFacts(_OPENAIS, needs_base_url=True),
    "azure": KindFacts(
        _OPENAIS,
        settings=(
            *("bearer_token", "deployment", "api_version"),
            *("auth", "tenant_id", "client_id", "client_secret", "authority_host", "token_scope"),
        ),
        key_header="api-key",
        needs_base_url=True,
        why_hosted="Azure runs it, whatever location says",
        limits_per_answer=("max_completion_tokens",),
        strict=True,
        addressed_by="`base_url`, `deployment` and `api_version`",
    ),
    "local": KindFacts(_OPENAIS, own_machine=True),
    "anthropic": KindFacts(
        ("anthropic_messages",),
        needs_base_url=True,
        requires_max_tokens=True,
        caches_marked_only=True,
        key_header="x-api-key",
    ),
    "litellm": KindFacts(("openai_chat", "openai_embeddings"), prefix_names_provider=True),
    "simulated": KindFacts(("openai_chat",), own_machine=True),
    "bedrock": replace(
        _BEDROCK,
        of_claude=replace(
            _BEDROCK, dialects=("anthropic_messages",), requires_max_tokens=True, regional_factor=_REGIONAL
        ),
    ),
    "gemini": KindFacts(
        ("gemini_generate",),
        needs_base_url=True,
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key="GEMINI_API_KEY",
        key_header="x-goog-api-key",
        prices="google",
        provider="gcp.gemini",
    ),
    "vertex": replace(
        _VERTEX,
        of_claude=replace(
            _VERTEX,
            dialects=("anthropic_messages",),
            requires_max_tokens=True,
            caches_marked_only=True,
            regional_factor=_REGIONAL,
        ),
    ),
    "thriftgate": KindFacts(
        (*_OPENAIS, "anthropic_messages"),
        needs_base_url=True,
        limits_per_answer=("max_completion_tokens",),
        provider="thriftgate",
        calls_others=True,
        tells_cost="x-thriftgate-cost-usd",
    ),
    "litellm_proxy": KindFacts(
        (*_OPENAIS, "anthropic_messages"),
        needs_base_url=True,
        limits_per_answer=("max_completion_tokens",),
        provider="litellm",
        calls_others=True,
        tells_cost="x-litellm-response-cost",
        no_quota="budget_exceeded",
        settings=("litellm_headers",),
    ),
    "openrouter": _preset(
        "https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        provider="openrouter",
        bills_in_usage=True,
        limits_per_answer=("max_tokens",),
        dialects=("openai_chat", "openai_completions", "openai_embeddings"),
    ),
    "mistral": _preset(
        "https://api.mistral.ai/v1",
        key="MISTRAL_API_KEY",
        prices="mistral",
        provider="mistral_ai",
        limits_per_answer=("max_tokens",),
        strict=True,
        rules=_MISTRAL,
    ),
    "groq": _preset(
        "https://api.groq.com/openai/v1",
        key="GROQ_API_KEY",
        prices="groq",
        provider="groq",
        limits_per_answer=("max_completion_tokens",),
        strict=True,
        dialects=("openai_chat", "openai_responses", "openai_other"),
        rules=_GROQ,
    ),
    "deepseek": _preset(
        "https://api.deepseek.com/v1",
        key="DEEPSEEK_API_KEY",
        prices="deepseek",
        provider="deepseek",
        limits_per_answer=("max_tokens",),
        dialects=("openai_chat",),
    ),
    "xai": _preset(
        "https://api.x.ai/v1",
        key="XAI_API_KEY",
        prices="xai",
        provider="x_ai",
        limits_per_answer=("max_completion_tokens",),
        dialects=("openai_chat", "openai_responses"),
        rules_of_models=((_GROK_THINKS, _GROK),),
    ),
    "together": _preset(
        "https://api.together.xyz/v1",
        key="TOGETHER_API_KEY",
        prices="together",
        provider="together_ai",
        limits_per_answer=("max_tokens",),
        dialects=("openai_chat", "openai_completions", "openai_embeddings", "openai_other"),
    ),
    "cohere": _preset(
        "https://api.cohere.ai/compatibility/v1",
        key="COHERE_API_KEY",
        prices="cohere",
        provider="cohere",
        limits_per_answer=("max_tokens",),
        dialects=("openai_chat", "openai_embeddings"),
    ),
    "gemini_openai": _preset(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        key="GEMINI_API_KEY",
        prices="google",
        provider="gcp.gemini",
        limits_per_answer=("max_completion_tokens",),
        strict=True,
        dialects=("openai_chat", "openai_embeddings"),
        rules=ChatRules(leaves_out=_BOOKKEEPING | {"user"}, keeps_signatures=True),
    ),
    "ollama": KindFacts(
        ("ollama_chat", "openai_completions"),
        needs_base_url=True,
        base_url="http://127.0.0.1:11434",
        at_v1=_preset(
            "http://127.0.0.1:11434/v1",
            limits_per_answer=("max_tokens",),
            dialects=("openai_chat", "openai_completions", "openai_embeddings"),
        ),
    ),
}
