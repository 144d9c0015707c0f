"""Vectors of one partition and their nearest neighbours; the only file that imports faiss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

FAISS_FROM = 512
"""Vectors; below it a matrix product is quicker than handing over."""
_COMPACT_FROM = 256
"""Removed vectors that a search may have to step over."""


class VectorIndex:
    """Unit vectors by number, searched by inner product. Not locked: its owner calls it from one thread."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._vectors: dict[int, Vector] = {}
        self._matrix: tuple[NDArray[np.int64], Vector] | None = None
        self._faiss: Any = None
        self._fresh: list[int] = []
        self._removed: set[int] = set()

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def bytes(self) -> int:
        """Memory of the vectors, a copy in faiss included."""
        return len(self) * self._dimensions * 4 * 2

    def add(self, number: int, vector: Vector) -> None:
        """`number` must be new."""
        self._vectors[number] = vector
        self._matrix = None
        if self._faiss is not None:
            self._fresh.append(number)

    def remove(self, number: int) -> None:
        if self._vectors.pop(number, None) is not None:
            self._matrix = None
            if self._faiss is not None:
                self._removed.add(number)

    def search(self, vector: Vector, most: int) -> list[tuple[int, float]]:
        """The `most` nearest as (number, cosine), nearest first."""
        if not self._vectors:
            return []
        if len(self._vectors) < FAISS_FROM:
            return self._search_matrix(vector, most)
        return self._search_faiss(vector, most)

    def _search_matrix(self, vector: Vector, most: int) -> list[tuple[int, float]]:
        self._faiss = None
        if self._matrix is None:
            numbers = np.fromiter(self._vectors, dtype=np.int64, count=len(self._vectors))
            self._matrix = numbers, np.stack(list(self._vectors.values()))
        numbers, matrix = self._matrix
        cosines = matrix @ vector
        order = np.argsort(-cosines)[:most]
        return [(int(numbers[place]), float(cosines[place])) for place in order]

    def _search_faiss(self, vector: Vector, most: int) -> list[tuple[int, float]]:
        self._bring_up_to_date()
        cosines, numbers = self._faiss.search(vector[np.newaxis], most + len(self._removed))
        found = [
            (int(number), float(cosine))
            for number, cosine in zip(numbers[0], cosines[0], strict=True)
            if int(number) in self._vectors
        ]
        return found[:most]

    def _bring_up_to_date(self) -> None:
        """Removing one vector moves the whole array, so removals wait until they are worth it."""
        import faiss

        if self._faiss is None:
            self._faiss = faiss.IndexIDMap2(faiss.IndexFlatIP(self._dimensions))
            self._fresh, self._removed = list(self._vectors), set()
        fresh = [number for number in self._fresh if number in self._vectors]
        if fresh:
            vectors = np.stack([self._vectors[number] for number in fresh])
            self._faiss.add_with_ids(vectors, np.array(fresh, dtype=np.int64))
        self._fresh = []
        if len(self._removed) > _COMPACT_FROM:
            self._faiss.remove_ids(np.fromiter(self._removed, dtype=np.int64, count=len(self._removed)))
            self._removed = set()
