"""The semantic cache on files of questions, with the code that serves: what would have been a hit?"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from gateway.cache.embedder import DIMENSIONS, OnnxEmbedder
from gateway.cache.entry import Entry
from gateway.cache.key import Keys
from gateway.cache.meanings import Found, Meanings
from gateway.cache.minilm import MiniLM
from gateway.cache.verify import Verifier
from gateway.dialects.openai_chat import parse
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Key, Tenant

MAX_ERROR = {"default": 0.01, "strict": 0.0}
"""Mode → wrong hits allowed; 0 lets only harmless differences pass."""

_TENANT = Tenant(Key("evaluate", "evaluate"), Policy(team="evaluate"))


class Evaluator:
    """Blocking; loads the model once. Raises EmbedderUnavailable when that is not what it should be."""

    def __init__(self, mode: str = "default") -> None:
        """`mode`: default | strict. Raises KeyError for another."""
        self._max_error = MAX_ERROR[mode]
        self._keys = Keys("")
        self._model = MiniLM()
        self._verifier = Verifier.load()

    def evaluate(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """`{"id", "stored", "asked"}`, each a text or a list of messages → `{"id", "hit", "score"}`."""
        for row in rows:
            meanings = self._empty()
            known: dict[bytes, str] = {}
            self._ask(meanings, known, "", row["stored"])
            _, score = self._ask(meanings, known, "", row["asked"])
            yield {"id": row["id"], "hit": score is not None, "score": score or 0.0}

    def replay(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """`{"id", "asked"}` in order, each stored unless it hit → `{"id", "hit", "match", "score"}`.

        `match` is the id of the row whose answer would have been served, else None.
        """
        meanings = self._empty()
        known: dict[bytes, str] = {}
        for row in rows:
            match, score = self._ask(meanings, known, str(row["id"]), row["asked"])
            yield {"id": row["id"], "hit": score is not None, "match": match, "score": score or 0.0}

    def _empty(self) -> Meanings:
        return Meanings(self._verifier, DIMENSIONS)

    def _ask(
        self, meanings: Meanings, known: dict[bytes, str], name: str, asked: str | list[dict[str, Any]]
    ) -> tuple[str | None, float | None]:
        """The name of the row that answers and how surely; on a miss the row is stored and both are None."""
        request = _request(asked)
        digest = self._keys.digest(request, _TENANT)
        if digest in known:
            return known[digest], 1.0
        found = self._find(meanings, request, digest)
        if found is not None:
            return known[found.digest], round(found.score, 4)
        known[digest] = name
        return None, None

    def _find(self, meanings: Meanings, request: CompletionRequest, digest: bytes) -> Found | None:
        question = self._keys.question(request, _TENANT, OnnxEmbedder.NAME)
        vector = self._model.embed(question.text) if question else None
        if question is None or vector is None:
            return None
        now = time.time()
        found = meanings.find(question, vector, max_error=self._max_error, now=now)
        if found is None:
            meanings.add(Entry(digest, "", (), now, float("inf"), 0, question, vector))
        return found


def _request(asked: str | list[dict[str, Any]]) -> CompletionRequest:
    """As a client would ask it, at temperature 0. Raises BadRequest."""
    messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    body = orjson.dumps({"model": "auto", "messages": messages, "temperature": 0})
    return parse(body, "evaluate", Controls(), {})
