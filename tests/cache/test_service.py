from __future__ import annotations

import asyncio

import numpy as np

from gateway.cache.entry import Entry
from gateway.cache.keys import Question
from gateway.cache.packing import pack
from gateway.cache.result import Ticket
from gateway.cache.semantic.pending import PendingQuestions
from gateway.cache.semantic.service import Semantic, SemanticResult
from gateway.domain.policy import CachePolicy
from tests.fakes.embedder import FakeEmbedder
from tests.support.waiting import until

QUESTION = Question(b"p", "How do I cook rice?")


class SlowEmbedder(FakeEmbedder):
    async def embed(self, text: str, owner: str = "") -> np.ndarray | None:
        await asyncio.sleep(30)
        return None


class BrokenEmbedder(FakeEmbedder):
    """Its session has no memory left, for the first `fails` questions."""

    fails = 3

    async def embed(self, text: str, owner: str = "") -> np.ndarray | None:
        if len(self.texts) < self.fails:
            self.texts.append(text)
            raise RuntimeError("Failed to allocate memory")
        return await super().embed(text, owner)


async def packed(text: str) -> bytes:
    vector = await FakeEmbedder().embed(text)
    assert vector is not None
    return pack(vector)


async def entry(text: str = QUESTION.text) -> Entry:
    return Entry(b"d", "a", (), 0.0, 4e9, 1, Question(b"p", text), await packed(text))


async def test_entries_that_were_there_before_it_loaded_are_not_lost() -> None:
    kept = [await entry()]
    level = Semantic(FakeEmbedder(), max_bytes=2**20, kept=lambda: kept)
    level.add(kept[0])
    level.begin()
    await until(lambda: level.ready)
    assert (await level.find(QUESTION, "who", 0.01)).found is not None
    level.remove(await entry())
    await level.tidy()
    assert level.stats()["semantic_questions"] == 0
    await level.aclose()


async def test_without_an_embedder_every_question_is_new() -> None:
    for embedder in (None, FakeEmbedder(ready=False)):
        level = Semantic(embedder, max_bytes=2**20)
        level.begin()
        assert await level.find(QUESTION, "who", 0.01) == SemanticResult()
        await level.aclose()


async def test_a_slow_embedder_makes_a_miss() -> None:
    level = Semantic(SlowEmbedder(), max_bytes=2**20, deadline_s=0.02)
    level.begin()
    await until(lambda: level.ready)
    assert await level.find(QUESTION, "who", 0.01) == SemanticResult()
    assert level.stats()["semantic_late"] == 1
    await level.aclose()


async def test_the_first_question_makes_it_load_and_is_new() -> None:
    level = Semantic(FakeEmbedder(), max_bytes=2**20)
    level.add(await entry())
    assert level.stats()["semantic_questions"] == 0
    assert await level.find(QUESTION, "who", 0.01) == SemanticResult()
    await until(lambda: level.ready)
    await level.aclose()


async def test_an_embedder_that_raises_makes_misses_and_rests() -> None:
    embedder = BrokenEmbedder()
    level = Semantic(embedder, max_bytes=2**20, kept=list, pause_s=0.3)
    level.begin()
    await until(lambda: level.ready)
    for _ in range(embedder.fails):
        assert not level.failed
        assert await level.find(QUESTION, "who", 0.01) == SemanticResult()
    assert level.failed
    assert await level.find(QUESTION, "who", 0.01) == SemanticResult()
    assert await level.vector(QUESTION, "who") is None
    assert len(embedder.texts) == embedder.fails, "while it rests it is not asked"

    async def embedded_again() -> bool:
        return (await level.find(QUESTION, "who", 0.01)).vector is not None

    await until(embedded_again)
    assert not level.failed
    await level.aclose()


async def test_nobody_waits_for_an_embedder_that_was_late_three_times() -> None:
    level = Semantic(SlowEmbedder(), max_bytes=2**20, deadline_s=0.01)
    level.begin()
    await until(lambda: level.ready)
    for _ in range(5):
        await level.find(QUESTION, "who", 0.01)
    assert level.stats()["semantic_late"] == 3
    assert level.failed
    await level.aclose()


async def test_a_question_stored_while_the_embedder_rests_is_embedded_afterwards() -> None:
    embedder = BrokenEmbedder()
    level = Semantic(embedder, max_bytes=2**20, pause_s=0.3)
    level.begin()
    await until(lambda: level.ready)
    for _ in range(embedder.fails):
        await level.find(QUESTION, "who", 0.01)
    assert not level.available
    vectors: list[object] = []

    async def mean(ticket: Ticket, entry: Entry, question: Question) -> None:
        vectors.append(await level.vector(question, ticket.sharers, urgent=False))

    pending = PendingQuestions(level, mean)
    ticket = Ticket(b"d", "a", (), 0.0, CachePolicy(), QUESTION, "who")
    pending.add(ticket, await entry(), QUESTION)
    await until(lambda: vectors)
    assert vectors[0] is not None
    await pending.aclose()
    await level.aclose()
