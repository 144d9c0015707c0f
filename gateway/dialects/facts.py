"""Registers the facts about each client dialect, with one line for each package.

Imports no parser, so that commands that only count tokens start quickly. `clients.py` imports the other parts of each
package.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from gateway.dialects.anthropic_messages import facts as anthropic_messages
from gateway.dialects.bedrock_converse import facts as bedrock_converse
from gateway.dialects.gemini_generate import facts as gemini_generate
from gateway.dialects.ollama_chat import facts as ollama_chat
from gateway.dialects.openai_chat import facts as openai_chat
from gateway.dialects.openai_completions import facts as openai_completions
from gateway.dialects.openai_embeddings import facts as openai_embeddings
from gateway.dialects.openai_responses import facts as openai_responses
from gateway.dialects.passthrough import facts as passthrough
from gateway.domain.dialect import Dialect
from gateway.domain.request import DialectName

REGISTERED: tuple[ModuleType, ...] = (
    openai_chat,
    openai_completions,
    openai_responses,
    openai_embeddings,
    passthrough,
    anthropic_messages,
    gemini_generate,
    bedrock_converse,
    ollama_chat,
)
FACTS: Mapping[DialectName, Dialect] = {each.FACTS.name: each.FACTS for each in REGISTERED}
