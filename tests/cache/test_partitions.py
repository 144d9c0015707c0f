from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.entry import Entry, Found
from gateway.cache.keys import Question
from gateway.cache.packing import pack
from gateway.cache.semantic import vector_index
from gateway.cache.semantic.partitions import ENTRY_BYTES, SemanticIndex
from gateway.cache.verifier.lexicon import load_words
from gateway.cache.verifier.verify import Verdict, Verifier
from tests.fakes.embedder import FakeEmbedder

EMBEDDER = FakeEmbedder()


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    """Rules only: what they let through is here what it is about."""
    return Verifier(load_words(), None)


async def entry(text: str, partition: bytes = b"p", *, expires: float = 100.0, worth: int = 0) -> Entry:
    vector = await EMBEDDER.embed(text)
    assert vector is not None
    question = Question(partition, text)
    return Entry(partition + text.encode(), "a", (), 0.0, expires, 1, question, pack(vector), worth_pico=worth)


async def find(semantic_index: SemanticIndex, text: str, partition: bytes = b"p", now: float = 0.0) -> Found | None:
    vector = await EMBEDDER.embed(text)
    assert vector is not None
    return semantic_index.seek(Question(partition, text), vector, max_error=0.01, now=now).found


async def test_the_same_question_is_found_in_its_own_partition_alone(verifier: Verifier) -> None:
    semantic_index = SemanticIndex(verifier, 384)
    semantic_index.add(await entry("How do I cook rice?"))
    found = await find(semantic_index, "how do i cook rice")
    assert found is not None
    assert found.digest == b"pHow do I cook rice?"
    assert await find(semantic_index, "how do i cook rice", b"q") is None
    assert await find(semantic_index, "how do i cook rice", now=100.0) is None
    assert await find(semantic_index, "how do i cook fish") is None


async def test_the_nearest_may_be_wrong_and_the_next_right(verifier: Verifier) -> None:
    semantic_index = SemanticIndex(verifier, 384)
    for text in ("How do I cook 2 eggs well?", "How do I cook two eggs"):
        semantic_index.add(await entry(text))
    found = await find(semantic_index, "How do I cook 2 eggs")
    assert found is not None
    assert found.digest == b"pHow do I cook two eggs"


async def test_what_was_removed_is_not_found(verifier: Verifier) -> None:
    semantic_index = SemanticIndex(verifier, 384)
    kept = await entry("How do I cook rice?")
    semantic_index.add(kept)
    semantic_index.remove(kept)
    assert await find(semantic_index, "how do i cook rice") is None
    assert (len(semantic_index), semantic_index.partitions, semantic_index.bytes) == (0, 0, 0)


async def test_above_its_memory_those_go_that_save_least_of_the_least_lately_asked_for(verifier: Verifier) -> None:
    semantic_index = SemanticIndex(verifier, 384, max_bytes=4 * (ENTRY_BYTES + 800))
    worths = {
        "How do I cook rice?": 900,
        "How do I boil eggs?": 10,
        "How do I fry fish?": 800,
        "How do I bake bread?": 1,
    }
    for text, worth in worths.items():
        semantic_index.add(await entry(text, worth=worth))
        semantic_index.apply()
    semantic_index.add(await entry("How do I grill corn?", worth=0))
    semantic_index.apply()
    assert semantic_index.bytes <= 4 * (ENTRY_BYTES + 800)
    assert semantic_index.evicted == 1
    assert await find(semantic_index, "how do i bake bread") is None
    for text in ("how do i boil eggs", "how do i grill corn"):
        assert await find(semantic_index, text) is not None
    semantic_index.remove(await entry("How do I bake bread?"))
    semantic_index.apply()
    assert len(semantic_index) == 4


async def test_what_came_nearest_is_told_and_a_bar_makes_a_hit_one_of_them(verifier: Verifier) -> None:
    semantic_index = SemanticIndex(verifier, 384)
    semantic_index.add(await entry("How do I cook rice?"))
    question = Question(b"p", "how do i cook rice")
    vector = await EMBEDDER.embed(question.text)
    assert vector is not None
    hit = semantic_index.seek(question, vector, max_error=0.01, now=0.0)
    assert hit.found is not None
    barred = semantic_index.seek(question, vector, max_error=0.01, now=0.0, bar=float("inf"))
    assert barred == (None, hit.found, True)


async def test_lists_are_trained_elsewhere_and_what_changed_meanwhile_counts(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "FAISS_FROM", 32)
    monkeypatch.setattr(vector_index, "LISTS_FROM", 128)
    semantic_index = SemanticIndex(verifier, 384)
    texts = [f"How do I cook dish number {number} of {number * 7 % 31}?" for number in range(160)]
    for text in texts:
        semantic_index.add(await entry(text))
    semantic_index.apply()
    build = semantic_index.outgrown()
    assert build is not None
    assert semantic_index.outgrown() is None, "one at a time"
    build.draft.build()
    semantic_index.remove(await entry(texts[3]))
    semantic_index.add(await entry("How do I repair a bicycle tyre?"))
    semantic_index.apply()
    semantic_index.adopt(build)
    assert semantic_index.trained == 1
    assert semantic_index.outgrown() is None
    assert (await find(semantic_index, "how do i repair a bicycle tyre")) is not None
    found = await find(semantic_index, texts[5])
    assert found is not None
    assert found.digest == b"p" + texts[5].encode()
    again = await find(semantic_index, texts[3])
    assert again is None or again.digest != b"p" + texts[3].encode()


async def test_a_vector_of_another_size_is_not_taken(verifier: Verifier) -> None:
    semantic_index = SemanticIndex(verifier, 384)
    semantic_index.add(Entry(b"d", "a", (), 0, 100, 1, Question(b"p", "x y"), pack(np.ones(3, dtype=np.float32))))
    semantic_index.apply()
    assert len(semantic_index) == 0


class _Counting(Verifier):
    """Notes how many questions it was told of."""

    def verify(self, stored: str, asked: str, cosine: float, *, max_error: float = 0.01, among: int = 1) -> Verdict:
        self.among = among
        return super().verify(stored, asked, cosine, max_error=max_error, among=among)


async def test_the_verifier_knows_how_many_questions_of_the_partition_are_stored() -> None:
    verifier = _Counting(load_words(), None)
    semantic_index = SemanticIndex(verifier, 384)
    for number in range(3):
        semantic_index.add(await entry(f"How do I cook {number} eggs?"))
    semantic_index.add(await entry("How do I cook rice?", b"q"))
    await find(semantic_index, "How do I cook 2 eggs")
    assert verifier.among == 3
