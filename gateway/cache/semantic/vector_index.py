"""Finds the nearest vectors in one partition. Only this module imports faiss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.cache.packing import BYTES_PER_DIMENSION, Vector, unpack

FAISS_FROM = 512
"""Minimum number of vectors for using faiss. With fewer vectors, a matrix product is faster."""
LISTS_FROM = 20_000
"""Minimum number of vectors for dividing them into lists. A search then reads only some of the lists."""

_RESCORED = 16
"""Number of vectors that are found by their eight-bit codes and for which the exact cosine is then computed."""
_DEVIATIONS = 8.0
"""Range of the codes, in standard deviations of the components of a unit vector. Larger components are cut off. The
exact cosines correct the error."""
_CHUNK = 1024
"""Number of vectors that are passed to faiss at a time. Copying vectors holds the interpreter's lock."""
_PER_CENTROID = 40
"""Number of vectors per list that are used for training."""
_TRAININGS = 8
_READ = 32
"""A search reads the share 1/`_READ` of the lists, but at least `_READ_LEAST` lists."""
_READ_LEAST = 16
_OUTGROWN = 4
"""New lists are trained when the index has grown or shrunk by this factor since the last training."""
_CODE_BYTES = 256
"""Memory in bytes that faiss needs for a vector in addition to its code: for the number, the position, and spare
capacity."""


def single_threaded() -> None:
    """Make faiss use only one OpenMP thread for later calls from this Python thread. On busy cores, two threads take
    sixty times as long."""
    import faiss

    faiss.omp_set_num_threads(1)


class VectorIndex:
    """Unit vectors, each with a number, that can be searched by inner product. Use it from one thread only.

    Above `LISTS_FROM` vectors, a search needs trained inverted lists (faiss IVF). To train them, call `draft`, then the
    draft's `build` in another thread, then `adopt`.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._vectors: dict[int, bytes] = {}
        self._matrix: tuple[NDArray[np.int64], Vector] | None = None
        self._codes: Any = None
        """The codes of the vectors, as a faiss index. The changes in `_fresh` and `_gone` are not yet applied to it."""
        self._fresh: list[int] = []
        self._gone: list[int] = []
        self._trained_on = 0
        """Number of vectors when the lists were last trained; 0 if there are no lists."""
        self._drafted = False
        self._since: list[tuple[int, bool]] = []
        """(Number of a vector, whether it was added or removed) for each change since the draft was made."""

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def memory(self) -> int:
        """Bytes of the vectors, and of their eight-bit codes if the index has lists."""
        code = self._dimensions + _CODE_BYTES if self._codes is not None else 0
        return len(self) * (self._dimensions * BYTES_PER_DIMENSION + code)

    def add(self, number: int, vector: bytes) -> None:
        """Add a vector. `number`: must be new. `vector`: encoded by `pack`."""
        self._vectors[number] = vector
        self._matrix = None
        if self._codes is not None:
            self._fresh.append(number)
        if self._drafted:
            self._since.append((number, True))

    def remove(self, number: int) -> None:
        if self._vectors.pop(number, None) is None:
            return
        self._matrix = None
        if self._codes is not None:
            self._gone.append(number)
        if self._drafted:
            self._since.append((number, False))

    def search(self, vector: Vector, most: int) -> list[tuple[int, float]]:
        """The nearest vectors as (number, cosine), nearest first. `most`: how many to return, at most `_RESCORED`."""
        if not self._vectors:
            return []
        if len(self._vectors) < FAISS_FROM:
            return self._search_matrix(vector, most)
        self.settle()
        _, found = self._codes.search(_scaled(vector[np.newaxis]), _RESCORED)
        numbers = [int(number) for number in found[0] if number >= 0]
        return self._nearest(np.array(numbers, dtype=np.int64), self._stack(numbers), vector, most)

    def _search_matrix(self, vector: Vector, most: int) -> list[tuple[int, float]]:
        self._forget_codes()
        if self._matrix is None:
            self._matrix = np.fromiter(self._vectors, np.int64, len(self._vectors)), self._stack(list(self._vectors))
        return self._nearest(*self._matrix, vector, most)

    @staticmethod
    def _nearest(numbers: NDArray[np.int64], matrix: Vector, vector: Vector, most: int) -> list[tuple[int, float]]:
        cosines = matrix @ vector
        order = np.argsort(-cosines)[:most]
        return [(int(numbers[place]), float(cosines[place])) for place in order]

    def _stack(self, numbers: Sequence[int]) -> Vector:
        return unpack(b"".join([self._vectors[number] for number in numbers]), self._dimensions)

    # -- codes ---------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Apply to the faiss index all additions and removals of vectors since the last search."""
        if len(self._vectors) < FAISS_FROM:
            return
        single_threaded()
        if self._codes is None:
            self._codes = _lists(self._dimensions, 1)
            self._codes.quantizer.add(np.zeros((1, self._dimensions), dtype=np.float32))
            self._codes.is_trained = True
            self._fresh, self._gone = list(self._vectors), []
        if self._gone:
            _take_out(self._codes, self._gone)
            self._gone = []
        if self._fresh:
            fresh = [number for number in self._fresh if number in self._vectors]
            for start in range(0, len(fresh), _CHUNK):
                chunk = fresh[start : start + _CHUNK]
                _put_in(self._codes, chunk, self._stack(chunk))
            self._fresh = []

    def _forget_codes(self) -> None:
        self._codes, self._fresh, self._gone = None, [], []
        self._trained_on, self._drafted, self._since = 0, False, []

    # -- lists, trained in another thread ------------------------------------------------------------------------------

    @property
    def outgrown(self) -> bool:
        """Whether new inverted lists must be trained, because the index has grown or shrunk."""
        if self._drafted or len(self) < LISTS_FROM:
            return False
        return not self._trained_on or not self._trained_on / _OUTGROWN < len(self) < self._trained_on * _OUTGROWN

    def draft(self) -> IndexBuild:
        """A copy of the vectors, for which lists can be trained. From now on, changes are recorded until `adopt` is
        called."""
        self._drafted, self._since = True, []
        return IndexBuild(self._dimensions, dict(self._vectors))

    def adopt(self, draft: IndexBuild) -> None:
        """Use the trained lists of `draft`, after the recorded changes were applied to them. Does nothing if the index
        has become too small for codes."""
        if not self._drafted or draft.codes is None:
            return
        changed = self._since
        self._forget_codes()
        self._codes, self._trained_on = draft.codes, len(draft.vectors)
        for number, added in changed:
            if added:
                self._fresh.append(number)
            elif number in draft.vectors:
                self._gone.append(number)
        self.settle()


@dataclass(slots=True)
class IndexBuild:
    """Inverted lists that are being trained. `build` may run in another thread, because no other code changes the
    object."""

    dimensions: int
    vectors: dict[int, bytes]
    codes: Any = None

    def build(self) -> None:
        """Train the lists, and assign every vector to a list. Blocks for seconds (100,000 vectors) or minutes (a
        million)."""
        single_threaded()
        lists = lists_for(len(self.vectors))
        codes = _lists(self.dimensions, lists)
        numbers = list(self.vectors)
        step = max(1, len(numbers) // (lists * _PER_CENTROID))
        sample = np.empty((len(range(0, len(numbers), step)), self.dimensions), dtype=np.float32)
        for place, number in enumerate(islice(numbers, 0, None, step)):
            sample[place] = unpack(self.vectors[number], self.dimensions)[0]
        codes.train(_scaled(sample))
        del sample
        codes.nprobe = max(_READ_LEAST, lists // _READ)
        codes.set_direct_map_type(_faiss().DirectMap.Hashtable)
        for start in range(0, len(numbers), _CHUNK):
            chunk = numbers[start : start + _CHUNK]
            packed = b"".join([self.vectors[number] for number in chunk])
            _put_in(codes, chunk, unpack(packed, self.dimensions))
        self.codes = codes


def lists_for(vectors: int) -> int:
    """The number of inverted lists for this number of `vectors`: the power of two nearest to 1.6 √`vectors`. With this
    number, comparing a query with the centres of the lists takes as long as searching the lists."""
    return int(2 ** round(np.log2(1.6 * np.sqrt(vectors))))


def _lists(dimensions: int, lists: int) -> Any:
    """An empty faiss index with `lists` inverted lists of eight-bit codes. A vector can be removed without reading the
    other vectors."""
    faiss = _faiss()
    centres = faiss.IndexFlatIP(dimensions)
    kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
    codes = faiss.IndexIVFScalarQuantizer(centres, dimensions, lists, kind, faiss.METRIC_INNER_PRODUCT, False)
    codes.quantizer_trains_alone = 0
    codes.cp.niter, codes.cp.max_points_per_centroid, codes.cp.spherical = _TRAININGS, _PER_CENTROID, True
    if lists == 1:
        codes.set_direct_map_type(faiss.DirectMap.Hashtable)
    return codes


def _put_in(codes: Any, numbers: Sequence[int], vectors: Vector) -> None:
    codes.add_with_ids(_scaled(vectors), np.array(numbers, dtype=np.int64))


def _take_out(codes: Any, numbers: Sequence[int]) -> None:
    codes.remove_ids(_faiss().IDSelectorArray(np.array(numbers, dtype=np.int64)))


def _scaled(vectors: Vector) -> Vector:
    """The vectors as whole numbers from −127 to 127.

    The factor fits unit vectors, whose components have a standard deviation of 1/√dimensions.
    """
    bound = np.float32(127)
    largest = np.float32(min(1.0, _DEVIATIONS / vectors.shape[1] ** 0.5))
    scaled: Vector = np.clip(np.rint(vectors * (bound / largest)), -bound, bound)
    return scaled


def _faiss() -> Any:
    import faiss

    return faiss
