"""The semantic level as the event loop sees it: vectors from the embedder, searches in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gateway.cache.entry import Entry, Vector
from gateway.cache.key import Question
from gateway.cache.meanings import Found, Meanings
from gateway.cache.verify import Verifier
from gateway.domain.protocols import Embedder
from gateway.domain.tasks import Tasks
from gateway.errors import EmbedderUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

DEADLINE_S = 0.25
"""Longest that a look-up waits for a vector and a search; later it is a miss."""
_WAITING = 1_000_000
"""Entries noted while the verifier still loads."""


class Semantic:
    """Off while the embedder or the verifier is not there; then every question is simply new."""

    def __init__(self, embedder: Embedder | None, *, max_bytes: int) -> None:
        self._embedder = embedder
        self._max_bytes = max_bytes
        self._meanings: Meanings | None = None
        self._early: list[tuple[bool, Entry]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="meanings")
        self._tasks = Tasks()
        self._failed = False
        self._counts = {"asked": 0, "found": 0, "late": 0, "refused": 0}

    async def open(self) -> None:
        """Returns at once; words and weights are read in the background."""
        if self._embedder is not None:
            self._tasks.spawn(self._load(), "verifier-load")

    async def _load(self) -> None:
        assert self._embedder is not None
        try:
            verifier = await self._in_thread(Verifier.load)
        except (OSError, ValueError, KeyError) as error:
            self._failed = True
            log.error("the verifier could not be loaded (%r); the semantic cache is off", error)
            return
        meanings = Meanings(verifier, self._embedder.dimensions, max_bytes=self._max_bytes)
        for adding, entry in self._early:
            (meanings.add if adding else meanings.remove)(entry)
        self._early.clear()
        self._meanings = meanings

    async def aclose(self) -> None:
        await self._tasks.aclose()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def name(self) -> str:
        """Which embedder made the vectors: others are of no use."""
        return self._embedder.name if self._embedder else ""

    @property
    def ready(self) -> bool:
        return self._meanings is not None and self._embedder is not None and self._embedder.ready

    @property
    def failed(self) -> bool:
        return self._failed or (self._embedder is not None and self._embedder.failed)

    def add(self, entry: Entry) -> None:
        if entry.vector is not None:
            self._note(True, entry)

    def remove(self, entry: Entry) -> None:
        if entry.vector is not None:
            self._note(False, entry)

    def _note(self, adding: bool, entry: Entry) -> None:
        if self._meanings is not None:
            (self._meanings.add if adding else self._meanings.remove)(entry)
        elif self._embedder is not None and not self._failed and len(self._early) < _WAITING:
            self._early.append((adding, entry))

    async def vector(self, question: Question) -> Vector | None:
        """None when there is none to be had, for whatever reason."""
        if self._embedder is None or not self._embedder.ready:
            return None
        try:
            vector: Vector | None = await self._embedder.embed(question.text)
        except EmbedderUnavailable:
            self._counts["refused"] += 1
            return None
        return vector

    async def find(self, question: Question, max_error: float) -> tuple[Vector | None, Found | None]:
        """The question's vector, and the earlier question that it repeats."""
        if not self.ready or self._meanings is None:
            return None, None
        self._counts["asked"] += 1
        vector = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                vector = await self.vector(question)
                if vector is None:
                    return None, None
                found = await self._in_thread(self._find, self._meanings, question, vector, max_error)
        except TimeoutError:
            self._counts["late"] += 1
            return vector, None
        self._counts["found"] += found is not None
        return vector, found

    @staticmethod
    def _find(meanings: Meanings, question: Question, vector: Vector, max_error: float) -> Found | None:
        return meanings.find(question, vector, max_error=max_error, now=time.time())

    async def tidy(self) -> None:
        """Apply what was noted, so that the notes do not pile up while nobody asks."""
        if self._meanings is not None:
            await self._in_thread(self._meanings.apply)

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def stats(self) -> dict[str, int | float | str]:
        meanings = self._meanings
        return {
            "semantic_ready": int(self.ready),
            "semantic_questions": len(meanings) if meanings else 0,
            "semantic_partitions": meanings.partitions if meanings else 0,
            "semantic_bytes": meanings.bytes if meanings else 0,
            "semantic_dropped_partitions": meanings.dropped if meanings else 0,
            **{f"semantic_{name}": count for name, count in self._counts.items()},
        }
