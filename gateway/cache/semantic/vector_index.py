"""Nearest neighbours of one partition's vectors. The only importer of faiss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.cache.packing import BYTES_PER_DIMENSION, Vector, unpack

FAISS_FROM = 512
"""Vectors; below it a matrix product is quicker than handing over."""
LISTS_FROM = 20_000
"""Number of vectors from which they are sorted into lists, of which a search reads a few."""

_RESCORED = 16
"""Nearest by eight-bit codes whose cosines are then worked out from the vectors themselves."""
_DEVIATIONS = 8.0
"""Of a unit vector's components; the codes cut off what is larger, which the exact cosines then make good."""
_CHUNK = 1024
"""Vectors handed to faiss at a time: what is copied meanwhile is copied under the interpreter's lock."""
_PER_CENTROID = 40
"""Vectors that each list's centre is trained on."""
_TRAININGS = 8
_READ = 32
"""One list of so many is read by a search, and no fewer than `_READ_LEAST`."""
_READ_LEAST = 16
_OUTGROWN = 4
"""So many times as large, or as small, as when its lists were trained: they are trained anew."""
_CODE_BYTES = 256
"""Beside the code of each vector in faiss: its number, where it lies, and room to grow."""


def single_threaded() -> None:
    """For the calling thread: two OpenMP threads on busy cores take sixty times as long as one."""
    import faiss

    faiss.omp_set_num_threads(1)


class VectorIndex:
    """Unit vectors by number, searched by inner product. Not locked: its owner calls it from one thread.

    Eight-bit codes find the nearest few, exact cosines say which they are. Up to `LISTS_FROM` every code is compared;
    above, whoever owns it has `draft` built in another thread and hands it to `adopt`.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._vectors: dict[int, bytes] = {}
        self._matrix: tuple[NDArray[np.int64], Vector] | None = None
        self._codes: Any = None
        """A faiss index, less what waits in `_fresh` and `_gone`."""
        self._fresh: list[int] = []
        self._gone: list[int] = []
        self._trained_on = 0
        """Vectors there were when the lists were drawn up; 0: it has none."""
        self._drafted = False
        self._since: list[tuple[int, bool]] = []
        """What was added (True) or removed since the draft was taken."""

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def memory(self) -> int:
        """Bytes of the vectors, and of their codes where there are any."""
        code = self._dimensions + _CODE_BYTES if self._codes is not None else 0
        return len(self) * (self._dimensions * BYTES_PER_DIMENSION + code)

    def add(self, number: int, vector: bytes) -> None:
        """`number` must be new; `vector` as `pack` makes it."""
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
        """The `most` nearest as (number, cosine), nearest first; `most` is at most `_RESCORED`."""
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
        """Hand faiss what was added, and take out what was removed, since it was last searched."""
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

    # -- lists, trained elsewhere --------------------------------------------------------------------------------------

    @property
    def outgrown(self) -> bool:
        """Are lists wanted that it does not have?"""
        if self._drafted or len(self) < LISTS_FROM:
            return False
        return not self._trained_on or not self._trained_on / _OUTGROWN < len(self) < self._trained_on * _OUTGROWN

    def draft(self) -> IndexBuild:
        """What lists are to be drawn up for; from now on changes are noted for `adopt`."""
        self._drafted, self._since = True, []
        return IndexBuild(self._dimensions, dict(self._vectors))

    def adopt(self, draft: IndexBuild) -> None:
        """Search the lists that were drawn up, brought up to date; nothing if the index has shrunk below codes."""
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
    """Lists in the making. `build` may run in any one thread: nothing here changes but by it."""

    dimensions: int
    vectors: dict[int, bytes]
    codes: Any = None

    def build(self) -> None:
        """Train, and sort all vectors in. Blocking: seconds for 100,000 vectors, a minute or two for a million."""
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
    """A power of two near 1.6 √`vectors`: searching the centres then costs about what searching the lists does."""
    return int(2 ** round(np.log2(1.6 * np.sqrt(vectors))))


def _lists(dimensions: int, lists: int) -> Any:
    """An inverted file of eight-bit codes; removing a number costs no pass over the others."""
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
    """To the range of the codes; a unit vector's components deviate by 1/√dimensions from zero."""
    bound = np.float32(127)
    largest = np.float32(min(1.0, _DEVIATIONS / vectors.shape[1] ** 0.5))
    scaled: Vector = np.clip(np.rint(vectors * (bound / largest)), -bound, bound)
    return scaled


def _faiss() -> Any:
    import faiss

    return faiss
