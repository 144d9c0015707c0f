"""Questions by meaning: one vector index per partition, and the verifier's word on every candidate."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from gateway.cache.embedder import Vector
from gateway.cache.entry import Entry
from gateway.cache.index import VectorIndex
from gateway.cache.key import Question
from gateway.cache.verify import Verifier

CANDIDATES = 4
LEAST_COSINE = 0.6


@dataclass(frozen=True, slots=True)
class Found:
    digest: bytes
    score: float
    """The verifier's certainty, 0..1."""
    cosine: float


@dataclass(slots=True)
class _Partition:
    index: VectorIndex
    entries: dict[int, Entry] = field(default_factory=dict)
    text_bytes: int = 0

    @property
    def bytes(self) -> int:
        return self.index.bytes + self.text_bytes


class Meanings:
    """`add` and `remove` may be called from anywhere and only take note; `find` and `apply` belong to one thread."""

    def __init__(self, verifier: Verifier, dimensions: int, *, max_bytes: int = 256 * 2**20) -> None:
        """Above `max_bytes` of vectors and texts the partition that was asked least recently goes."""
        self._verifier = verifier
        self._dimensions = dimensions
        self._max_bytes = max_bytes
        self._partitions: OrderedDict[bytes, _Partition] = OrderedDict()
        self._places: dict[bytes, tuple[bytes, int]] = {}
        self._last = 0
        self._waiting: deque[tuple[bool, Entry]] = deque()
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    def add(self, entry: Entry) -> None:
        self._waiting.append((True, entry))

    def remove(self, entry: Entry) -> None:
        self._waiting.append((False, entry))

    def apply(self) -> None:
        """Do what was noted, and make room."""
        while self._waiting:
            adding, entry = self._waiting.popleft()
            self._take_out(entry)
            if adding:
                self._put_in(entry)
        while self.bytes > self._max_bytes and len(self._partitions) > 1:
            self._drop()

    def find(self, question: Question, vector: Vector, *, max_error: float, now: float) -> Found | None:
        """The nearest earlier question whose answer serves this one too. Blocking: a few milliseconds at most."""
        self.apply()
        partition = self._partitions.get(question.partition)
        if partition is None or self._verifier.timely(question.text):
            return None
        self._partitions.move_to_end(question.partition)
        for number, cosine in partition.index.search(vector, CANDIDATES):
            entry = partition.entries[number]
            if cosine < LEAST_COSINE:
                break
            if entry.expires_at <= now or entry.question is None:
                continue
            verdict = self._verifier.verify(entry.question.text, question.text, cosine, max_error=max_error)
            if verdict.accepted:
                return Found(entry.digest, verdict.score, cosine)
        return None

    def _put_in(self, entry: Entry) -> None:
        if entry.question is None or entry.vector is None or entry.vector.shape != (self._dimensions,):
            return
        partition = self._partitions.get(entry.question.partition)
        if partition is None:
            partition = self._partitions[entry.question.partition] = _Partition(VectorIndex(self._dimensions))
        self._last += 1
        before = partition.bytes
        partition.index.add(self._last, entry.vector)
        partition.entries[self._last] = entry
        partition.text_bytes += len(entry.question.text)
        self._places[entry.digest] = entry.question.partition, self._last
        self.bytes += partition.bytes - before

    def _take_out(self, entry: Entry) -> None:
        name, number = self._places.pop(entry.digest, (b"", 0))
        partition = self._partitions.get(name)
        if partition is None:
            return
        before = partition.bytes
        partition.index.remove(number)
        question = partition.entries.pop(number).question
        partition.text_bytes -= len(question.text) if question else 0
        self.bytes += partition.bytes - before
        if not partition.entries:
            del self._partitions[name]

    def _drop(self) -> None:
        _, partition = self._partitions.popitem(last=False)
        for entry in partition.entries.values():
            del self._places[entry.digest]
        self.bytes -= partition.bytes
        self.dropped += 1
