from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.packing import pack
from gateway.cache.semantic.vector_index import FAISS_FROM, VectorIndex


def vectors(count: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("count", [1, 5, FAISS_FROM - 1, FAISS_FROM + 40])
def test_the_nearest_come_first_however_many_there_are(count: int) -> None:
    drawn = vectors(count)
    index = VectorIndex(16)
    for number, vector in enumerate(drawn):
        index.add(number, pack(vector))
    for asked in vectors(5, seed=1):
        expected = np.argsort(-(drawn @ asked))[:3]
        found = index.search(asked, 3)
        assert [number for number, _ in found] == list(expected)
        assert [cosine for _, cosine in found] == pytest.approx((drawn @ asked)[expected], abs=1e-3)


def test_what_was_removed_is_not_found_and_what_was_added_later_is() -> None:
    drawn = vectors(2 * FAISS_FROM)
    index = VectorIndex(16)
    for number in range(FAISS_FROM + 300):
        index.add(number, pack(drawn[number]))
    index.search(drawn[0], 1)
    for number in range(0, 600, 2):
        index.remove(number)
    for number in range(FAISS_FROM + 300, 2 * FAISS_FROM):
        index.add(number, pack(drawn[number]))
    kept = [number for number in range(2 * FAISS_FROM) if number >= 600 or number % 2]
    assert len(index) == len(kept)
    for asked in (0, 1, 599, 700, 2 * FAISS_FROM - 1):
        nearest = max(kept, key=lambda number: float(drawn[number] @ drawn[asked]))
        assert index.search(drawn[asked], 1)[0][0] == nearest


def test_an_empty_index_finds_nothing() -> None:
    assert VectorIndex(16).search(vectors(1)[0], 3) == []


def test_lists_find_the_nearest_too_and_keep_up_with_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cache.semantic.vector_index.LISTS_FROM", 3000)
    drawn = vectors(6000)
    index = VectorIndex(16)
    for number in range(4000):
        index.add(number, pack(drawn[number]))
    assert index.outgrown
    draft = index.draft()
    assert not index.outgrown, "one draft at a time"
    for number in range(500):
        index.remove(number)
    for number in range(4000, 4200):
        index.add(number, pack(drawn[number]))
    index.search(drawn[0], 1)
    draft.build()
    index.adopt(draft)
    assert not index.outgrown
    assert not any(number < 500 for asked in range(0, 500, 50) for number, _ in index.search(drawn[asked], 4))
    for asked in (500, 3999, 4000, 4199):
        assert index.search(drawn[asked], 1)[0] == (asked, pytest.approx(1, abs=1e-3))
    for number in range(4200, 6000):
        index.add(number, pack(drawn[number]))
    recalled = [index.search(drawn[asked], 1)[0][0] == asked for asked in range(500, 6000, 55)]
    assert sum(recalled) >= 0.99 * len(recalled)


def test_lists_are_trained_anew_when_they_are_outgrown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cache.semantic.vector_index.LISTS_FROM", 600)
    drawn = vectors(2600)
    index = VectorIndex(16)
    for number in range(600):
        index.add(number, pack(drawn[number]))
    draft = index.draft()
    draft.build()
    index.adopt(draft)
    for number in range(600, 2399):
        index.add(number, pack(drawn[number]))
    assert not index.outgrown
    for number in range(2399, 2600):
        index.add(number, pack(drawn[number]))
    assert index.outgrown


def test_an_index_that_shrank_needs_no_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cache.semantic.vector_index.LISTS_FROM", 600)
    drawn = vectors(600)
    index = VectorIndex(16)
    for number in range(600):
        index.add(number, pack(drawn[number]))
    draft = index.draft()
    for number in range(590):
        index.remove(number)
    assert index.search(drawn[595], 1)[0][0] == 595
    draft.build()
    index.adopt(draft)
    assert index.search(drawn[595], 1)[0][0] == 595
    assert index.memory == 10 * 32
