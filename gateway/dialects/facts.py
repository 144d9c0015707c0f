"""Facts about all client dialects, by name of the dialect. Imports no parser, so that commands that only count tokens
start quickly."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.dialects.anthropic_messages.facts import FACTS as ANTHROPIC_MESSAGES
from gateway.dialects.gemini_generate.facts import FACTS as GEMINI_GENERATE
from gateway.dialects.openai_chat.facts import FACTS as OPENAI_CHAT
from gateway.dialects.openai_completions.facts import FACTS as OPENAI_COMPLETIONS
from gateway.dialects.openai_embeddings.facts import FACTS as OPENAI_EMBEDDINGS
from gateway.dialects.openai_responses.facts import FACTS as OPENAI_RESPONSES
from gateway.dialects.passthrough.facts import FACTS as OPENAI_OTHER
from gateway.domain.dialect import Dialect
from gateway.domain.request import DialectName

FACTS: Mapping[DialectName, Dialect] = {
    each.name: each
    for each in (
        OPENAI_CHAT,
        OPENAI_COMPLETIONS,
        OPENAI_RESPONSES,
        OPENAI_EMBEDDINGS,
        OPENAI_OTHER,
        ANTHROPIC_MESSAGES,
        GEMINI_GENERATE,
    )
}
