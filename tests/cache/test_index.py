from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.index import FAISS_FROM, VectorIndex


def vectors(count: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("count", [1, 5, FAISS_FROM - 1, FAISS_FROM + 40])
def test_the_nearest_come_first_however_many_there_are(count: int) -> None:
    drawn = vectors(count)
    index = VectorIndex(16)
    for number, vector in enumerate(drawn):
        index.add(number, vector)
    for asked in vectors(5, seed=1):
        expected = np.argsort(-(drawn @ asked))[:3]
        found = index.search(asked, 3)
        assert [number for number, _ in found] == list(expected)
        assert [cosine for _, cosine in found] == pytest.approx((drawn @ asked)[expected], abs=1e-5)


def test_what_was_removed_is_not_found_and_what_was_added_later_is() -> None:
    drawn = vectors(2 * FAISS_FROM)
    index = VectorIndex(16)
    for number in range(FAISS_FROM + 300):
        index.add(number, drawn[number])
    index.search(drawn[0], 1)
    for number in range(0, 600, 2):
        index.remove(number)
    for number in range(FAISS_FROM + 300, 2 * FAISS_FROM):
        index.add(number, drawn[number])
    kept = [number for number in range(2 * FAISS_FROM) if number >= 600 or number % 2]
    assert len(index) == len(kept)
    for asked in (0, 1, 599, 700, 2 * FAISS_FROM - 1):
        nearest = max(kept, key=lambda number: float(drawn[number] @ drawn[asked]))
        assert index.search(drawn[asked], 1)[0][0] == nearest


def test_an_empty_index_finds_nothing() -> None:
    assert VectorIndex(16).search(vectors(1)[0], 3) == []
