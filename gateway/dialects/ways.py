"""Which ways lead from a client's dialect to a backend's, and which of them is taken."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gateway.dialects.chat_to_chat import ChatToChat
from gateway.dialects.chat_to_messages import ChatToMessages
from gateway.dialects.chat_to_responses import ChatToResponses
from gateway.dialects.completions_as_chat import CompletionsAsChat
from gateway.dialects.completions_to_completions import CompletionsToCompletions
from gateway.dialects.embeddings_to_embeddings import EmbeddingsToEmbeddings
from gateway.dialects.messages_to_chat import MessagesToChat
from gateway.dialects.messages_to_messages import MessagesToMessages
from gateway.dialects.other_to_other import OtherToOther
from gateway.dialects.responses_to_chat import ResponsesToChat
from gateway.dialects.responses_to_responses import ResponsesToResponses
from gateway.dialects.through import Through, Translation
from gateway.dialects.wire import Wire
from gateway.domain.request import DialectName

_FROM_CHAT: tuple[Wire, ...] = (ChatToChat(), ChatToMessages(), ChatToResponses())
_SAME: tuple[Wire, ...] = (
    CompletionsToCompletions(),
    EmbeddingsToEmbeddings(),
    OtherToOther(),
    ResponsesToResponses(),
    MessagesToMessages(),
)
"""The same dialect on both sides: the bytes go through."""
_TRANSLATIONS: tuple[Translation, ...] = (CompletionsAsChat(), ResponsesToChat(), MessagesToChat())

_ORDER: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages", "openai_responses")
"""Of backend dialects that are not the client's own: from what says most of what there is to say, and is at home in
most places."""


def _table(*, thinks: bool) -> dict[tuple[DialectName, DialectName], Wire]:
    wires: dict[tuple[DialectName, DialectName], Wire] = {}
    for wire in (*_FROM_CHAT, *_SAME):
        wires[wire.client, wire.backend] = wire
    for translation in _TRANSLATIONS:
        for inner in _FROM_CHAT:
            wires.setdefault((translation.client, inner.backend), Through(translation, inner, thinks=thinks))
    return wires


_WIRES, _THOUGHTLESS = _table(thinks=True), _table(thinks=False)


def wire(client: DialectName, backend: DialectName) -> Wire:
    """The way from `client` to `backend`. Raises KeyError for a pair that nobody speaks."""
    return _WIRES[client, backend]


@lru_cache(maxsize=1024)
def ways(client: DialectName, spoken: Iterable[DialectName], *, thinks: bool = True) -> tuple[Wire, ...]:
    """The ways from `client` to a backend that speaks `spoken` (hashable), the best one first; none: it cannot.

    `thinks`: it can be told how hard to think. Others refuse the field, and it is a hint.
    """
    wires = _WIRES if thinks else _THOUGHTLESS
    order = (client, *(dialect for dialect in _ORDER if dialect != client))
    return tuple(wires[client, dialect] for dialect in order if dialect in spoken and (client, dialect) in wires)
