"""The facts of each kind of backend that other packages need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.domain.request import DialectName

Kind = Literal["openai", "anthropic", "azure", "local", "litellm", "simulated"]

_OPENAIS: tuple[DialectName, ...] = (
    "openai_chat",
    "openai_responses",
    "openai_completions",
    "openai_embeddings",
    "openai_other",
)


@dataclass(frozen=True, slots=True)
class KindFacts:
    """The facts of one kind. `backends/providers/` has a module for each kind."""

    dialects: tuple[DialectName, ...]
    """The dialects that its servers may speak, its own first. Servers with OpenAI's dialect differ in the others they
    know."""
    needs_base_url: bool = False
    why_hosted: str = ""
    """Why prompts to it leave the operator's machines at any address; empty: the address decides."""
    own_machine: bool = False
    """Whether it runs on this machine unless `location` is set."""
    requires_max_tokens: bool = False
    """Whether its API refuses a request that does not limit the output."""
    caches_marked_only: bool = False
    """Whether its prompt cache stores only what the client marks, and reports how much that was."""
    limits_per_answer: tuple[str, ...] = ()
    """The fields of a chat request that limit the output tokens; empty: derived from address and model."""
    strict: bool = False
    """Whether its API refuses chat message fields that only Anthropic's API has; False: derived from the address."""
    resumable: bool = True
    """Whether an interrupted read of its stream can be resumed."""
    addressed_by: str = "`base_url` and `model`"
    """The settings to check after a 404 for an unknown path or model."""
    prefix_names_provider: bool = False
    """Whether the prefix of a model's name tells which provider is called."""


KINDS: Mapping[str, KindFacts] = {
    "openai": KindFacts(_OPENAIS, needs_base_url=True),
    "azure": KindFacts(
        _OPENAIS,
        needs_base_url=True,
        why_hosted="Azure runs it, whatever location says",
        limits_per_answer=("max_completion_tokens",),
        strict=True,
        addressed_by="`base_url`, `deployment` and `api_version`",
    ),
    "local": KindFacts(_OPENAIS, own_machine=True),
    "anthropic": KindFacts(
        ("anthropic_messages",), needs_base_url=True, requires_max_tokens=True, caches_marked_only=True
    ),
    "litellm": KindFacts(("openai_chat",), resumable=False, prefix_names_provider=True),
    "simulated": KindFacts(("openai_chat",), own_machine=True),
}
