from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.entry import Entry
from gateway.cache.key import Question
from gateway.cache.meanings import Found, Meanings
from gateway.cache.verify import Verifier
from tests.fakes.embedder import FakeEmbedder

EMBEDDER = FakeEmbedder()


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return Verifier.load()


async def entry(text: str, partition: bytes = b"p", *, expires: float = 100.0) -> Entry:
    return Entry(
        partition + text.encode(), "a", (), 0.0, expires, 1, Question(partition, text), await EMBEDDER.embed(text)
    )


async def find(meanings: Meanings, text: str, partition: bytes = b"p", now: float = 0.0) -> Found | None:
    vector = await EMBEDDER.embed(text)
    assert vector is not None
    return meanings.find(Question(partition, text), vector, max_error=0.01, now=now)


async def test_the_same_question_is_found_in_its_own_partition_alone(verifier: Verifier) -> None:
    meanings = Meanings(verifier, 384)
    meanings.add(await entry("How do I cook rice?"))
    found = await find(meanings, "how do i cook rice")
    assert found is not None
    assert found.digest == b"pHow do I cook rice?"
    assert await find(meanings, "how do i cook rice", b"q") is None
    assert await find(meanings, "how do i cook rice", now=100.0) is None
    assert await find(meanings, "how do i cook fish") is None


async def test_the_nearest_may_be_wrong_and_the_next_right(verifier: Verifier) -> None:
    meanings = Meanings(verifier, 384)
    for text in ("How do I cook 2 eggs well?", "How do I cook two eggs"):
        meanings.add(await entry(text))
    found = await find(meanings, "How do I cook 2 eggs")
    assert found is not None
    assert found.digest == b"pHow do I cook two eggs"


async def test_what_was_removed_is_not_found(verifier: Verifier) -> None:
    meanings = Meanings(verifier, 384)
    kept = await entry("How do I cook rice?")
    meanings.add(kept)
    meanings.remove(kept)
    assert await find(meanings, "how do i cook rice") is None
    assert (len(meanings), meanings.partitions, meanings.bytes) == (0, 0, 0)


async def test_above_its_memory_the_partition_asked_least_recently_goes(verifier: Verifier) -> None:
    meanings = Meanings(verifier, 384, max_bytes=7000)
    for partition in (b"p", b"q"):
        meanings.add(await entry("How do I cook rice?", partition))
        await find(meanings, "How do I cook rice?", partition)
    other = await entry("How do I cook rice?")
    meanings.add(await entry("How do I boil eggs?", b"r"))
    await find(meanings, "x", b"r")
    assert meanings.bytes <= 7000
    assert meanings.dropped >= 1
    assert await find(meanings, "how do i boil eggs", b"r") is not None
    meanings.remove(other)
    meanings.apply()


async def test_a_vector_of_another_size_is_not_taken(verifier: Verifier) -> None:
    meanings = Meanings(verifier, 384)
    meanings.add(Entry(b"d", "a", (), 0, 100, 1, Question(b"p", "x y"), np.ones(3, dtype=np.float32)))
    meanings.apply()
    assert len(meanings) == 0
