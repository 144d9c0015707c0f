"""What the loop side of an embedder does, on a model that is scripted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from gateway.cache.packing import Vector
from gateway.cache.semantic.embedder import ModelEmbedder
from gateway.errors import EmbedderUnavailable
from tests.support.waiting import until


class Scripted:
    """Works while `gate` is open, and notes what it was given together."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []

    def embed_all(self, texts: Sequence[str]) -> list[Vector | None]:
        self.batches.append(list(texts))
        self.gate.wait(10)
        if "broken" in texts:
            raise RuntimeError("out of memory")
        return [np.full(3, len(text), dtype=np.float32) for text in texts]


async def ready(model: Scripted, **options: int) -> ModelEmbedder:
    made = ModelEmbedder(lambda: model, name="scripted", dimensions=3, max_tokens=256, **options)
    await made.wait_ready(5)
    return made


async def test_a_text_alone_waits_for_nobody_and_those_that_come_meanwhile_go_together() -> None:
    model = Scripted()
    embedder = await ready(model)
    model.gate.clear()
    tasks = [asyncio.create_task(embedder.embed("a"))]
    await until(lambda: model.batches == [["a"]])
    tasks += [asyncio.create_task(embedder.embed(text)) for text in ("bb", "ccc", "dddd")]
    await asyncio.sleep(0)
    model.gate.set()
    vectors = await asyncio.gather(*tasks)
    assert [float(vector[0]) for vector in vectors if vector is not None] == [1, 2, 3, 4]
    assert model.batches == [["a"], ["bb", "ccc", "dddd"]]
    assert embedder.stats()["embedder_batches"] == 2
    await embedder.aclose()


async def test_the_same_text_is_embedded_once_for_all_who_ask_meanwhile() -> None:
    model = Scripted()
    embedder = await ready(model)
    model.gate.clear()
    tasks = [asyncio.create_task(embedder.embed("same")) for _ in range(5)]
    await until(lambda: bool(model.batches))
    tasks.append(asyncio.create_task(embedder.embed("same")))
    await asyncio.sleep(0)
    model.gate.set()
    await asyncio.gather(*tasks)
    assert model.batches == [["same"]]
    await embedder.aclose()


async def test_a_batch_is_of_like_lengths_and_begins_with_who_waited_longest() -> None:
    model = Scripted()
    embedder = await ready(model, together=2)
    model.gate.clear()
    tasks = [asyncio.create_task(embedder.embed("first"))]
    await until(lambda: bool(model.batches))
    texts = ("short", "long" * 20, "brief", "wide" * 21)
    tasks += [asyncio.create_task(embedder.embed(text)) for text in texts]
    await asyncio.sleep(0)
    model.gate.set()
    await asyncio.gather(*tasks)
    assert model.batches[1:] == [["short", "brief"], ["long" * 20, "wide" * 21]]
    await embedder.aclose()


async def test_what_the_model_raises_is_heard_by_who_asked_and_the_next_are_served() -> None:
    model = Scripted()
    embedder = await ready(model)
    with pytest.raises(RuntimeError, match="out of memory"):
        await embedder.embed("broken")
    assert await embedder.embed("whole") is not None
    await embedder.aclose()


async def test_who_hangs_up_harms_nobody_and_closing_leaves_nobody_waiting() -> None:
    model = Scripted()
    embedder = await ready(model, waiting=1)
    model.gate.clear()
    impatient = asyncio.create_task(embedder.embed("a"))
    patient = asyncio.create_task(embedder.embed("a"))
    await until(lambda: bool(model.batches))
    impatient.cancel()
    waiting = asyncio.create_task(embedder.embed("b"))
    await asyncio.sleep(0)
    with pytest.raises(EmbedderUnavailable, match="too many"):
        await embedder.embed("c")
    closing = asyncio.create_task(embedder.aclose())
    with pytest.raises(asyncio.CancelledError):
        await waiting
    model.gate.set()
    await closing
    with pytest.raises(asyncio.CancelledError):
        await patient
