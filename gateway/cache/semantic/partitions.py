"""The semantic index: one vector index for each partition. The verifier checks each candidate that a search finds."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from gateway.cache.entry import Entry, Found
from gateway.cache.keys import Question
from gateway.cache.packing import BYTES_PER_DIMENSION, Vector
from gateway.cache.semantic.vector_index import IndexBuild, VectorIndex
from gateway.cache.verifier.verify import Verifier

CANDIDATES = 4
LEAST_COSINE = 0.6

ENTRY_BYTES = 2000
"""Memory of an entry in bytes, in addition to its vector and text, as measured. It consists of the digest, the place,
numbers, and the containers that hold these."""
_COMPARED = 16
"""Number of questions that are compared when one must be evicted. They are the questions that were not used for the
longest time. Of these, the question that saves least per byte is evicted."""
_PIECE_S = 0.02
"""Maximum seconds for which queued changes are applied without a break. This limits how long look-ups wait."""


class Query(NamedTuple):
    """The result of a search: the hit or, if there is no hit, the best candidate."""

    found: Found | None = None
    near: Found | None = None
    accepted: bool = False
    """Whether the verifier accepts `near`. If so, only the threshold of the scope refuses it."""


@dataclass(frozen=True, slots=True)
class Build:
    """New lists that are being trained for the vector index of a partition. The partition has become too large for its
    present lists."""

    partition: bytes
    index: VectorIndex
    draft: IndexBuild


@dataclass(slots=True)
class _Partition:
    index: VectorIndex
    entries: dict[int, Entry] = field(default_factory=dict)
    text_bytes: int = 0

    @property
    def memory(self) -> int:
        return self.index.memory + self.text_bytes + len(self.entries) * ENTRY_BYTES


class SemanticIndex:
    """The vector indexes of all partitions. `add` and `remove` may be called from any thread; other methods from one
    thread only."""

    def __init__(
        self,
        verifier: Verifier,
        dimensions: int,
        *,
        max_bytes: int = 256 * 2**20,
        knots: Sequence[tuple[float, float]] = (),
    ) -> None:
        """`knots`: pairs (cosine of another embedder, equivalent cosine of the packaged embedder).

        `max_bytes`: memory limit for vectors and texts. If it is exceeded, old questions that save little money per
        byte are evicted.
        """
        self._verifier = verifier
        self._dimensions = dimensions
        self._max_bytes = max_bytes
        self._own, self._packaged = [own for own, _ in knots], [packaged for _, packaged in knots]
        self._partitions: dict[bytes, _Partition] = {}
        self._places: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()
        """Digest → (partition, number of the entry). The question that was not used for the longest time comes first.
        """
        self._last = 0
        self._waiting: deque[tuple[bool, Entry]] = deque()
        self._drafted: Build | None = None
        self.bytes = 0
        self.evicted = 0
        self.trained = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    @property
    def waiting(self) -> int:
        """Number of changes that wait in the queue."""
        return len(self._waiting)

    def add(self, entry: Entry) -> None:
        self._waiting.append((True, entry))

    def remove(self, entry: Entry) -> None:
        self._waiting.append((False, entry))

    def apply(self, within_s: float = float("inf")) -> None:
        """Apply the queued changes and evict questions. After `within_s` seconds, the remaining changes stay in the
        queue.
        """
        until = time.monotonic() + within_s
        while self._waiting and time.monotonic() < until:
            adding, entry = self._waiting.popleft()
            self._take_out(entry.digest)
            if adding:
                self._put_in(entry)
                while self.bytes > self._max_bytes and len(self._places) > 1:
                    self._evict()

    def seek(self, question: Question, vector: Vector, *, max_error: float, now: float, bar: float = 0.0) -> Query:
        """Find the nearest earlier question whose answer fits `question`; if there is none, the best candidate.
        Blocks for a few milliseconds.

        `bar`: minimum score of a hit, in addition to the verifier's own minimum. `now`: Unix seconds.
        """
        self.apply(_PIECE_S)
        partition = self._partitions.get(question.partition)
        if partition is None or self._verifier.varies(question.text):
            return Query()
        near, accepted = None, False
        for entry, cosine in self._candidates(partition, vector):
            if entry.expires_at <= now or entry.question is None:
                continue
            verdict = self._verifier.verify(
                entry.question.text, question.text, cosine, max_error=max_error, among=len(partition.entries)
            )
            found = Found(entry.digest, verdict.score, cosine, entry.asker)
            if verdict.accepted and verdict.score >= bar:
                self._places.move_to_end(entry.digest)
                return Query(found)
            if (verdict.accepted, verdict.score) > (accepted, near.score if near else 0.0):
                near, accepted = found, verdict.accepted
        return Query(None, near, accepted)

    def _candidates(self, partition: _Partition, vector: Vector) -> Iterator[tuple[Entry, float]]:
        for number, found in partition.index.search(vector, CANDIDATES):
            cosine = float(np.interp(found, self._own, self._packaged)) if self._own else found
            if cosine < LEAST_COSINE:
                return
            yield partition.entries[number], cosine

    def _put_in(self, entry: Entry) -> None:
        question, vector = entry.question, entry.vector
        if question is None or vector is None or len(vector) != self._dimensions * BYTES_PER_DIMENSION:
            return
        partition = self._partitions.get(question.partition)
        if partition is None:
            partition = self._partitions[question.partition] = _Partition(VectorIndex(self._dimensions))
        self._last += 1
        before = partition.memory
        partition.index.add(self._last, vector)
        partition.entries[self._last] = entry
        partition.text_bytes += len(question.text)
        self._places[entry.digest] = question.partition, self._last
        self.bytes += partition.memory - before

    def _take_out(self, digest: bytes) -> None:
        name, number = self._places.pop(digest, (b"", 0))
        partition = self._partitions.get(name)
        if partition is None:
            return
        before = partition.memory
        partition.index.remove(number)
        question = partition.entries.pop(number).question
        partition.text_bytes -= len(question.text) if question else 0
        self.bytes += partition.memory - before
        if not partition.entries:
            del self._partitions[name]

    def _evict(self) -> None:
        """Evict questions until the memory limit is met. The newest question is evicted only if no other is left."""
        oldest = islice(self._places.items(), min(_COMPARED, len(self._places) - 1))
        self._take_out(min(oldest, key=lambda item: self._worth(*item[1]))[0])
        self.evicted += 1

    def _worth(self, partition: bytes, number: int) -> float:
        entry = self._partitions[partition].entries[number]
        return entry.worth_pico / (ENTRY_BYTES + len(entry.question.text if entry.question else ""))

    # -- lists, trained in another thread ------------------------------------------------------------------------------

    def outgrown(self) -> Build | None:
        """The largest partition that needs new lists. None if no partition needs them, or while the lists of a
        partition are being trained.
        """
        if self._drafted is not None:
            return None
        wanting = [name for name, partition in self._partitions.items() if partition.index.outgrown]
        if not wanting:
            return None
        name = max(wanting, key=lambda each: len(self._partitions[each].index))
        index = self._partitions[name].index
        self._drafted = Build(name, index, index.draft())
        return self._drafted

    def adopt(self, build: Build) -> None:
        """Use the trained lists, if training succeeded. Does nothing if the partition has been removed in the
        meantime."""
        self._drafted = None
        partition = self._partitions.get(build.partition)
        if partition is not None and partition.index is build.index:
            before = partition.memory
            partition.index.adopt(build.draft)
            self.bytes += partition.memory - before
            self.trained += 1
