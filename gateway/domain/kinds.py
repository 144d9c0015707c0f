"""Facts of each kind of backend, as far as other packages treat its backends differently."""

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
    """One kind of backend. `backends/providers/` has a module for each."""

    dialects: tuple[DialectName, ...]
    """What its servers may speak, its own dialect first; servers of OpenAI's differ in what they know beyond it."""
    needs_base_url: bool = False
    why_hosted: str = ""
    """Why prompts to it leave the operator's machines wherever its address leads; empty: its address decides."""
    own_machine: bool = False
    """Does it run on this machine, unless `location` says otherwise?"""
    requires_max_tokens: bool = False
    """Does its API refuse a request that limits no output?"""
    caches_marked_only: bool = False
    """Does its prompt cache keep only what the client marks, and report how much that was?"""
    limits_per_answer: tuple[str, ...] = ()
    """Chat's fields for the most tokens of an answer that it knows; empty: its address and model tell."""
    strict: bool = False
    """Does its API refuse fields of chat messages that only Anthropic's knows? False: its address tells."""
    resumable: bool = True
    """May a read of its stream be given up and go on later?"""
    addressed_by: str = "`base_url` and `model`"
    """The settings to check where its server says that it knows no such path or model."""
    prefix_names_provider: bool = False
    """Does the prefix of a model's name say which provider is called?"""


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
