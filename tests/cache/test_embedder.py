from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from gateway.cache.semantic.embedder import OnnxEmbedder
from gateway.errors import EmbedderUnavailable

pytestmark = pytest.mark.heavy


@pytest_asyncio.fixture
async def embedder() -> AsyncIterator[OnnxEmbedder]:
    embedder = OnnxEmbedder(remembered=3)
    await embedder.wait_ready(15)
    yield embedder
    await embedder.aclose()


async def test_like_texts_lie_close_and_unlike_ones_do_not(embedder: OnnxEmbedder) -> None:
    one, two, three = [
        await embedder.embed(text) for text in ("How do I cook rice?", "how to cook rice", "The law of gravity")
    ]
    assert one is not None
    assert two is not None
    assert three is not None
    assert one.shape == (384,)
    assert one.dtype == np.float32
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    assert one @ two > 0.85
    assert one @ three < 0.3


async def test_a_text_beyond_the_window_has_no_vector(embedder: OnnxEmbedder) -> None:
    assert await embedder.embed("word " * 200) is not None
    assert await embedder.embed("word " * 255) is None
    assert await embedder.embed("word " * 100_000) is None


async def test_recent_vectors_are_remembered_and_old_ones_forgotten(embedder: OnnxEmbedder) -> None:
    for text in ("a", "b", "a", "c", "d", "b"):
        await embedder.embed(text)
    stats = embedder.stats()
    assert (stats["embedder_embedded"], stats["embedder_recalled"]) == (5, 1)


async def test_what_one_asked_is_not_answered_sooner_to_another(embedder: OnnxEmbedder) -> None:
    before = dict(embedder.stats())
    await asyncio.gather(*(embedder.embed("a secret question", owner) for owner in ("team/a", "team/b", "team/a")))
    await embedder.embed("a secret question", "team/b")
    await embedder.embed("a secret question", "team/c")
    after = embedder.stats()
    assert after["embedder_embedded"] - before["embedder_embedded"] == 3  # type: ignore[operator]
    assert after["embedder_recalled"] - before["embedder_recalled"] == 1  # type: ignore[operator]


async def test_it_refuses_while_it_is_not_ready_or_too_busy() -> None:
    embedder = OnnxEmbedder(waiting=0)
    with pytest.raises(EmbedderUnavailable, match="not ready"):
        await embedder.embed("a")
    await embedder.wait_ready(15)
    with pytest.raises(EmbedderUnavailable, match="waiting"):
        await embedder.embed("a")
    await embedder.aclose()


async def test_other_weights_are_not_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("gateway.cache.semantic.minilm.WEIGHTS_SHA256", "0" * 64)
    embedder = OnnxEmbedder()
    with pytest.raises(EmbedderUnavailable):
        await embedder.wait_ready(15)
    assert embedder.failed
    assert "not the file we know" in caplog.text
    await embedder.aclose()
