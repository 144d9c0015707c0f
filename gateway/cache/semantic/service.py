"""Asynchronous access to the semantic index. The index is loaded on first use and runs in a separate thread."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gateway.cache.entry import Entry, Found
from gateway.cache.keys import Question
from gateway.cache.packing import Vector
from gateway.domain.protocols import Embedder
from gateway.runtime.tasks import Tasks

if TYPE_CHECKING:  # these import NumPy, faiss and the verifier's words
    from gateway.cache.semantic.partitions import Query, SemanticIndex

T = TypeVar("T")

log = logging.getLogger(__name__)

DEADLINE_S = 0.25
"""Maximum seconds that a look-up waits for the vector and the search. A look-up that takes longer is a miss."""
_TOLERATED = 3
"""Number of consecutive look-ups that may time out or fail. If more look-ups do, the embedder counts as failed."""
PAUSE_S = 5.0
"""Seconds for which an embedder that has failed is not used. After that, it is tried again."""
_LOADING_S = 0.1
"""Seconds between two checks whether the embedder is loaded."""
_PIECE_S = 0.02
"""Maximum seconds for which queued changes are applied without a break, so that look-ups can run in between."""
_SWITCH_S = 0.0005
"""Seconds after which a thread that runs Python code yields to the event loop. Python's default of 5 ms is too long."""


class SemanticResult(NamedTuple):
    """The result of a semantic look-up."""

    vector: Vector | None = None
    found: Found | None = None
    near: Found | None = None
    """The best candidate, if there is no hit."""
    accepted: bool = False
    """Whether the verifier accepts `near`. If so, only the threshold of the scope refuses it."""
    cpu_s: float = 0.0


class Semantic:
    """Finds questions by their meaning. Until `begin` has loaded embedder and verifier, every look-up is a miss."""

    def __init__(
        self,
        embedder: Embedder | None,
        *,
        max_bytes: int,
        kept: Callable[[], Iterable[Entry]] = tuple,
        deadline_s: float = DEADLINE_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        """`kept`: returns the entries that exist when loading has finished; they are added to the index."""
        self._embedder = embedder
        self._deadline_s, self._pause_s = deadline_s, pause_s
        self._max_bytes, self._kept = max_bytes, kept
        self._meanings: SemanticIndex | None = None
        self._begun = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="meanings")
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="index-build")
        self._tasks = Tasks()
        self._failed = False
        self._in_a_row = 0
        self._troubled_at = float("-inf")
        self._counts = {"asked": 0, "found": 0, "late": 0, "refused": 0}

    def begin(self) -> None:
        """Start to load the embedder and the verifier in the background. Repeated calls have no effect."""
        if self._embedder is not None and not self._begun:
            self._begun = True
            self._embedder.begin()
            self._tasks.spawn(self._load(self._embedder), "verifier-load")

    async def _load(self, embedder: Embedder) -> None:
        try:
            knots = getattr(embedder, "knots", ())
            semantic_index = await self._in_thread(_meanings, embedder.dimensions, self._max_bytes, knots)
        except (OSError, ValueError, KeyError) as error:
            self._failed = True
            log.error("the verifier could not be loaded (%r); the semantic cache is off", error)
            return
        for entry in self._kept():
            if entry.vector is not None:
                semantic_index.add(entry)
        self._meanings = semantic_index

    async def aclose(self) -> None:
        await self._tasks.aclose()
        for executor in (self._thread, self._builder):
            executor.shutdown(wait=False, cancel_futures=True)

    @property
    def name(self) -> str:
        """The name of the embedder that computes the vectors. Vectors of different embedders cannot be compared."""
        return self._embedder.name if self._embedder else ""

    @property
    def ready(self) -> bool:
        return self._meanings is not None and self._embedder is not None and self._embedder.ready

    @property
    def available(self) -> bool:
        """Whether vectors can be computed now: the embedder is loaded, and is not paused after failures."""
        return self.ready and not self._resting

    async def wait_available(self) -> bool:
        """Start loading, and wait until vectors can be computed. Returns False if loading has failed permanently."""
        self.begin()
        while not self.available:
            if self._embedder is None or self._failed or self._embedder.failed:
                return False
            await asyncio.sleep(_LOADING_S)
        return True

    @property
    def failed(self) -> bool:
        """Whether semantic look-ups are switched off after a failure, for a time or permanently."""
        down = self._failed or self._in_a_row >= _TOLERATED
        return down or (self._embedder is not None and self._embedder.failed)

    @property
    def _resting(self) -> bool:
        return self._in_a_row >= _TOLERATED and time.monotonic() < self._troubled_at + self._pause_s

    def _trouble(self, what: str) -> None:
        self._in_a_row += 1
        if self._in_a_row == _TOLERATED:
            log.warning("the embedder is down (%s): the semantic cache rests", what)
        self._troubled_at = time.monotonic()

    def _well(self) -> None:
        if self._in_a_row >= _TOLERATED:
            log.info("the embedder works again")
        self._in_a_row = 0

    def add(self, entry: Entry) -> None:
        if entry.vector is not None:
            self._note(entry, adding=True)

    def remove(self, entry: Entry) -> None:
        if entry.vector is not None:
            self._note(entry, adding=False)

    def _note(self, entry: Entry, *, adding: bool) -> None:
        if self._meanings is not None:
            (self._meanings.add if adding else self._meanings.remove)(entry)

    async def vector(self, question: Question, owner: str, *, urgent: bool = True) -> Vector | None:
        """The vector of a question; None if it cannot be computed. `owner`: scope within which a computed vector is
        reused.

        `urgent`: whether a caller waits. If not, a busy embedder does not count as a failure.
        """
        if self._embedder is None or not self._embedder.ready or self._resting:
            return None
        try:
            vector: Vector | None = await self._embedder.embed(question.text, owner)
        except Exception as error:  # an error of the model or its libraries only loses savings
            self._counts["refused"] += 1
            if urgent:
                self._trouble(repr(error))
            return None
        return vector

    async def find(self, question: Question, owner: str, max_error: float, bar: float = 0.0) -> SemanticResult:
        """Find the earlier question with the same meaning as `question`. `owner`: the scope within which answers are
        shared. `bar`: minimum score of the verifier."""
        if not self.ready or self._meanings is None:
            self.begin()
            return SemanticResult()
        if self._resting:
            return SemanticResult()
        self._counts["asked"] += 1
        vector, embedded_s = None, self._embedded_s
        try:
            async with asyncio.timeout(self._deadline_s):
                vector = await self.vector(question, owner)
                if vector is None:
                    return SemanticResult()
                sought, search_s = await self._in_thread(
                    _seek, self._meanings, question, vector, max_error, bar, time.time()
                )
        except TimeoutError:
            self._counts["late"] += 1
            self._trouble(f"no vector within {self._deadline_s:g} s")
            return SemanticResult(vector)
        self._well()
        self._counts["found"] += sought.found is not None
        return SemanticResult(
            vector, sought.found, sought.near, sought.accepted, search_s + self._embedded_s - embedded_s
        )

    @property
    def _embedded_s(self) -> float:
        """Processor seconds that the embedder has used so far, for texts of all callers."""
        cpu_s: float = getattr(self._embedder, "cpu_s", 0.0)
        return cpu_s

    async def embed(self, text: str) -> Vector | None:
        """The vector of any text, for callers that can wait. Raises EmbedderUnavailable and the errors of the model."""
        if self._embedder is None or not self.ready:
            return None
        vector: Vector | None = await self._embedder.embed(text)
        return vector

    async def tidy(self) -> None:
        """Apply queued changes, which would otherwise accumulate while there are no look-ups. Also train the index's
        inverted lists anew where this is needed."""
        await self.apply()
        await self.train()

    async def apply(self) -> None:
        while self._meanings is not None and self._meanings.waiting:
            await self._in_thread(self._meanings.apply, _PIECE_S)

    async def train(self) -> None:
        """Train new inverted lists for the partition of the index that needs them most. The training runs in a thread
        that no look-up uses."""
        semantic_index = self._meanings
        build = await self._in_thread(semantic_index.outgrown) if semantic_index is not None else None
        if semantic_index is None or build is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._builder, build.draft.build)
        finally:
            await self._in_thread(semantic_index.adopt, build)

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def stats(self) -> dict[str, int | float | str]:
        semantic_index = self._meanings
        return {
            "semantic_ready": int(self.ready),
            "semantic_questions": len(semantic_index) if semantic_index else 0,
            "semantic_partitions": semantic_index.partitions if semantic_index else 0,
            "semantic_bytes": semantic_index.bytes if semantic_index else 0,
            "semantic_evicted": semantic_index.evicted if semantic_index else 0,
            "semantic_trained": semantic_index.trained if semantic_index else 0,
            **{f"semantic_{name}": count for name, count in self._counts.items()},
        }


def _seek(
    semantic_index: SemanticIndex, question: Question, vector: Vector, max_error: float, bar: float, now: float
) -> tuple[Query, float]:
    """The result of the search, and the processor seconds that the search took."""
    began = time.thread_time()
    sought = semantic_index.seek(question, vector, max_error=max_error, now=now, bar=bar)
    return sought, time.thread_time() - began


def _meanings(dimensions: int, max_bytes: int, knots: Sequence[tuple[float, float]]) -> SemanticIndex:
    """A new semantic index with the packaged words and weights.

    This function also imports faiss, so that no look-up has to wait for the import.
    """
    from gateway.cache.semantic.partitions import SemanticIndex
    from gateway.cache.semantic.vector_index import single_threaded
    from gateway.cache.verifier.verify import Verifier

    single_threaded()
    sys.setswitchinterval(_SWITCH_S)
    return SemanticIndex(Verifier.load(), dimensions, max_bytes=max_bytes, knots=knots)
