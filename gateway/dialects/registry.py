"""Chooses the translator from a client's dialect to a backend's dialect."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gateway.dialects.base import Translator
from gateway.dialects.clients import CLIENTS
from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.translate.chat_to_converse.embeddings import EmbeddingsToBedrock
from gateway.dialects.translate.chat_to_converse.translator import ChatToConverse
from gateway.dialects.translate.chat_to_gemini.embeddings import EmbeddingsToGemini
from gateway.dialects.translate.chat_to_gemini.translator import ChatToGemini
from gateway.dialects.translate.chat_to_messages.translator import ChatToMessages
from gateway.dialects.translate.chat_to_ollama.embeddings import EmbeddingsToOllama
from gateway.dialects.translate.chat_to_ollama.translator import ChatToOllama
from gateway.dialects.translate.chat_to_responses.translator import ChatToResponses
from gateway.dialects.via_chat import ViaChat
from gateway.domain.chat_rules import NO_RULES, ChatRules
from gateway.domain.request import DialectName

LIMITS = ("max_completion_tokens", "max_tokens")
"""Names of the field for the output limit in OpenAI's chat dialect. The first field limits the output including
reasoning, and some of OpenAI's models require this field. Many other servers know only the second field."""
_ORDER: tuple[DialectName, ...] = (
    *("openai_chat", "anthropic_messages", "openai_responses"),
    *("bedrock_converse", "gemini_generate", "ollama_chat"),
)
"""Order of preference among backend dialects that differ from the client's dialect. Dialects that can express more and
are more widely supported come first."""


@lru_cache(maxsize=32)
def _table(
    thinks: bool, limits: tuple[str, ...], strict: bool, rules: ChatRules, obfuscates: bool = False
) -> dict[tuple[DialectName, DialectName], Translator]:
    wires: dict[tuple[DialectName, DialectName], Translator] = {}
    chat = ChatToChat(limits, strict=strict, rules=rules)
    from_chat: tuple[Translator, ...] = (
        *(chat, ChatToMessages(), ChatToResponses()),
        *(ChatToConverse(), ChatToGemini(), ChatToOllama()),
    )
    embeddings = (EmbeddingsToOllama(), EmbeddingsToGemini(), EmbeddingsToBedrock())
    for wire in (*from_chat, *embeddings, *(client.native for client in CLIENTS.values() if client.native)):
        wires[wire.client, wire.backend] = wire
    for translation in (client.translation for client in CLIENTS.values() if client.translation):
        for inner in from_chat:
            wires.setdefault(
                (translation.client, inner.backend), ViaChat(translation, inner, thinks=thinks, obfuscates=obfuscates)
            )
    return wires


def wire(client: DialectName, backend: DialectName) -> Translator:
    """The translator from `client` to `backend`. Raises KeyError if there is no translator for this pair of
    dialects."""
    return _table(True, LIMITS, False, NO_RULES)[client, backend]


@lru_cache(maxsize=1024)
def translators(
    client: DialectName,
    spoken: Iterable[DialectName],
    *,
    thinks: bool = True,
    limits: tuple[str, ...] = LIMITS,
    strict: bool = False,
    rules: ChatRules = NO_RULES,
    obfuscates: bool = False,
) -> tuple[Translator, ...]:
    """The translators from `client` to a backend, best first; may be empty.

    - `spoken`: the backend's dialects, hashable.
    - `thinks`: whether the backend accepts a reasoning effort.
    - `limits`: fields for the output limit that the backend knows.
    - `strict`: whether the backend rejects Anthropic's fields of messages and tools.
    - `rules`: other differences between the backend's chat API and OpenAI's.
    - `obfuscates`: whether the backend adds random texts to its events if the request does not decline them.
    """
    wires = _table(thinks, limits, strict, rules, obfuscates)
    order = (client, *(dialect for dialect in _ORDER if dialect != client))
    return tuple(wires[client, dialect] for dialect in order if dialect in spoken and (client, dialect) in wires)
