"""Leaves out the passages of long documents that do not concern the user's question (`context.long_documents`).

The passages are chosen by the document's text and by the question that was asked when the document was first sent.
Later questions do not change the choice. So every worker replaces the document by the same bytes in all requests of
a session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from gateway.context.cuts.session import Cut
from gateway.context.estimate import estimate
from gateway.context.strategies.passages import is_document, passages
from gateway.context.strategies.question import questions_in
from gateway.context.strategies.ranking import Words
from gateway.context.strategies.selection import edges, merged, select
from gateway.domain.holdout import is_held_out
from gateway.domain.protocols import Embedder
from gateway.domain.request import CompletionRequest, Turn
from gateway.domain.tenant import Tenant
from gateway.runtime.off_loop import OffLoop

log = logging.getLogger(__name__)

LEAST_CHARACTERS = 2000
"""Minimum characters of a document. From a shorter one, too little can be left out."""
_MOST_CHARACTERS = 400_000
"""A longer document is sent whole, because reading it takes too long."""
_MOST_VECTORS = 96
"""Maximum passages of a document that are embedded: those with the most common words."""
_AT_ONCE = 8
_PATIENCE_S = 3.0
"""Seconds for which a request waits for the vectors. After this time, the document is sent whole."""
_REMEMBERED = 2048
_THOUGHT = (b'"thinking"', b"encrypted_content", b'"thinking_blocks"', b"thought_signature", b"thoughtSignature")
"""Names of fields with signed thinking, or that ask for it. A signature covers everything before it, so these requests
are sent whole."""
_DIALECTS = frozenset({"openai_chat", "openai_responses", "anthropic_messages", "bedrock_converse", "ollama_chat"})
_UNSAFE = frozenset({"reasoning", "json_schema"})
"""Needs of requests that are sent whole: with signed thinking, or with data to extract from the whole document."""


class Relevance:
    """Implements `Strategy` for long documents. The object belongs to one event loop."""

    def __init__(
        self, embedder: Embedder, off_loop: OffLoop, switched_off: Callable[[str], bool] = lambda team: False
    ) -> None:
        self._embedder, self._off_loop, self._switched_off = embedder, off_loop, switched_off
        self._known: OrderedDict[bytes, str | None] = OrderedDict()
        """Digest of the API key, the questions and the document → the text that is sent. None: the document is sent
        whole."""
        self._counts = {"documents_cut": 0, "documents_whole": 0, "documents_failed": 0}

    def stats(self) -> dict[str, int]:
        return dict(self._counts)

    async def cut(self, request: CompletionRequest, tenant: Tenant, found: Cut) -> Cut:
        """Return `found` with shortened documents. If an error occurs, the document is sent whole."""
        if not self._may(request, tenant):
            return found
        texts, tokens = dict[int, str](), found.tokens
        for place, questions in documents(request.turns):
            if place in found.texts:
                continue
            text = request.turns[place].text
            sent = await self._remembered(text, questions, tenant)
            if sent is not None:
                texts[place] = sent
                tokens += max(0, estimate(text) - estimate(sent))
        return replace(found, texts={**texts, **found.texts}, tokens=tokens)

    def _may(self, request: CompletionRequest, tenant: Tenant) -> bool:
        if tenant.policy.context.long_documents == "keep":
            return False
        if request.dialect not in _DIALECTS or not _UNSAFE.isdisjoint(request.needs):
            return False
        return not (self._switched_off(tenant.team) or contains_thinking(request) or is_exempt(request, tenant))

    async def _remembered(self, text: str, questions: Sequence[str], tenant: Tenant) -> str | None:
        digest = blake2b("\0".join((tenant.key.lineage, *questions, text)).encode("utf-8", "surrogatepass"))
        key = digest.digest()[:16]
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        try:
            async with asyncio.timeout(_PATIENCE_S):
                sent = await self._shortened(text, questions, tenant.key.lineage)
        except Exception as error:  # the request is more important than what is saved on it
            self._counts["documents_failed"] += 1
            log.warning("a document was sent whole: %r", error)
            sent = None
        self._counts["documents_whole" if sent is None else "documents_cut"] += 1
        self._known[key] = sent
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return sent

    async def _shortened(self, text: str, questions: Sequence[str], owner: str) -> str | None:
        if not await self._off_loop.run(is_document, text):
            return None
        parts = await self._off_loop.run(passages, text)
        index = await self._off_loop.run(Words, text, parts)
        words = [index.scores(question) for question in questions]
        best = sorted(range(len(parts)), key=lambda number: -max(scores[number] for scores in words))[:_MOST_VECTORS]
        vectors = await self._vectors([text[parts[number].start : parts[number].end] for number in best], owner)
        asked = await self._vectors(questions, owner)
        cosines = []
        for question in asked:
            near: list[float | None] = [None] * len(parts)
            for number, vector in zip(best, vectors, strict=True):
                near[number] = None if vector is None or question is None else float(vector @ question)
            cosines.append(near)
        scores = merged(words, cosines, index.novelties())
        return await self._off_loop.run(select, text, parts, scores, edges(text, parts, questions))

    async def _vectors(self, texts: Sequence[str], owner: str) -> list[Any]:
        found: list[Any] = []
        for start in range(0, len(texts), _AT_ONCE):
            found += await asyncio.gather(
                *[self._embedder.embed(text, owner) for text in texts[start : start + _AT_ONCE]]
            )
        return found


def contains_thinking(request: CompletionRequest) -> bool:
    """Whether the request contains signed thinking, or asks for thinking. Then no text before the thinking may
    change."""
    return any(name in request.raw for name in _THOUGHT)


def is_exempt(request: CompletionRequest, tenant: Tenant) -> bool:
    """Whether nothing may be left out of the request: its client forbids it, or its session is held out."""
    if request.controls.untouched or not request.one_context:
        return True
    session = request.controls.session or request.agent_session
    return is_held_out(tenant.team, session, tenant.policy.context.holdout)


def documents(turns: Sequence[Turn]) -> list[tuple[int, tuple[str, ...]]]:
    """The turns that may contain a long document, each with the questions that were asked when it was first sent.

    For a document of the user, the questions are in the same message or in the user's messages beside it. For the
    result of a tool, they are in the user's last message before it.
    """
    found = []
    for place, turn in enumerate(turns):
        if turn.role not in ("user", "tool") or not LEAST_CHARACTERS <= len(turn.text) <= _MOST_CHARACTERS:
            continue
        if turn.images or turn.files or turn.instructs or len(turn.results) > 1:
            continue
        if questions := _asked(turns, place):
            found.append((place, questions))
    return found


def _asked(turns: Sequence[Turn], place: int) -> tuple[str, ...]:
    if turns[place].results or turns[place].role == "tool":
        before = (turn for turn in reversed(turns[:place]) if turn.role == "user" and not turn.results)
        return questions_in(said.text) if (said := next(before, None)) is not None else ()
    first = last = place
    while first and _speaks(turns[first - 1]):
        first -= 1
    while last + 1 < len(turns) and _speaks(turns[last + 1]):
        last += 1
    found = [question for turn in turns[first : last + 1] for question in questions_in(turn.text)]
    return tuple(dict.fromkeys(found))


def _speaks(turn: Turn) -> bool:
    return turn.role == "user" and not turn.results
