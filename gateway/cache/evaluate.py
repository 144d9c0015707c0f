"""Evaluates the semantic cache on files of questions. Uses the same code that serves requests."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from gateway.cache.entry import Entry
from gateway.cache.keys import Keys
from gateway.cache.packing import pack
from gateway.cache.semantic.built import load, read_facts
from gateway.cache.semantic.embedder import DIMENSIONS, Model, OnnxEmbedder
from gateway.cache.semantic.minilm import MiniLM
from gateway.cache.semantic.partitions import Query, SemanticIndex
from gateway.cache.verifier.lexicon import load_words
from gateway.cache.verifier.verify import Scorer, Verifier
from gateway.dialects.openai_chat.dialect import parse
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Key, Tenant

MAX_ERROR = {"default": 0.01, "strict": 0.0}
"""Mode → allowed share of wrong hits. If the share is 0, a question is a hit only if all differences to the stored
question are harmless."""

_TENANT = Tenant(Key("evaluate", "evaluate"), Policy(team="evaluate"))


class Evaluator:
    """Evaluates files of questions. The methods block. The model is loaded once. Raises EmbedderUnavailable if the
    model is damaged."""

    def __init__(self, mode: str = "default", *, lists: bool = True, embedder: Path | None = None) -> None:
        """`mode`: default or strict; others raise KeyError. `lists`: whether the verifier uses its word lists.
        `embedder`: folder from `embedder build`; None: the packaged embedder."""
        self._max_error = MAX_ERROR[mode]
        self._keys = Keys("")
        facts = read_facts(embedder) if embedder is not None else None
        self._model: Model = load(embedder, facts) if embedder is not None and facts is not None else MiniLM()
        self._name = facts.name if facts is not None else OnnxEmbedder.NAME
        self._dimensions = facts.dimensions if facts is not None else DIMENSIONS
        self._knots = facts.knots if facts is not None else ()
        words = load_words()
        self._verifier = Verifier(words if lists else words.without_lists(), Scorer.load())

    def evaluate(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Read rows `{"id", "stored", "asked"}` and yield `{"id", "hit", "score"}` for each row.

        `stored`, `asked`: a text or a list of messages. `score`: the verifier's score (0 to 1); 0 if a rule
        refuses.
        """
        for row in rows:
            semantic_index = self._empty()
            known: dict[bytes, str] = {}
            self._ask(semantic_index, known, "", row["stored"])
            match, score = self._ask(semantic_index, known, "", row["asked"])
            yield {"id": row["id"], "hit": match is not None, "score": score}

    def replay(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Read rows `{"id", "asked"}` in order, and yield `{"id", "hit", "match", "score"}` for each. Questions of
        misses are stored.

        `match`: id of the earlier row whose answer would be served; None for a miss.
        """
        semantic_index = self._empty()
        known: dict[bytes, str] = {}
        for row in rows:
            match, score = self._ask(semantic_index, known, str(row["id"]), row["asked"])
            yield {"id": row["id"], "hit": match is not None, "match": match, "score": score}

    def _empty(self) -> SemanticIndex:
        return SemanticIndex(self._verifier, self._dimensions, knots=self._knots)

    def _ask(
        self, semantic_index: SemanticIndex, known: dict[bytes, str], name: str, asked: str | list[dict[str, Any]]
    ) -> tuple[str | None, float]:
        """Look up the question `asked`, and store it under `name` if it is a miss. `known`: digest → name of stored
        questions.

        Returns (name of the stored question, score). For a miss: (None, score of the best candidate).
        """
        request = _request(asked)
        digest = self._keys.digest(request, _TENANT)
        if digest in known:
            return known[digest], 1.0
        sought = self._seek(semantic_index, request, digest)
        if sought.found is not None:
            return known[sought.found.digest], round(sought.found.score, 4)
        known[digest] = name
        return None, round(sought.near.score, 4) if sought.near else 0.0

    def _seek(self, semantic_index: SemanticIndex, request: CompletionRequest, digest: bytes) -> Query:
        question = self._keys.question(request, _TENANT, self._name)
        vector = self._model.embed_all((question.text,))[0] if question else None
        if question is None or vector is None:
            return Query()
        now = time.time()
        sought = semantic_index.seek(question, vector, max_error=self._max_error, now=now)
        if sought.found is None:
            semantic_index.add(Entry(digest, "", (), now, float("inf"), 0, question, pack(vector)))
        return sought


def _request(asked: str | list[dict[str, Any]]) -> CompletionRequest:
    """The request that a client would send to ask `asked`. The temperature is 0. Raises BadRequest."""
    messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    body = orjson.dumps({"model": "auto", "messages": messages, "temperature": 0})
    return parse(body, "evaluate", Controls(), {})
