from __future__ import annotations

import math

from gateway.cache.compare import Comparer
from gateway.cache.features import NAMES, Featurer
from gateway.cache.text import Reader
from gateway.cache.words import load_words

WORDS = load_words()
READER, COMPARER = Reader(WORDS), Comparer(WORDS)


def row(stored: str, asked: str, cosine: float = 0.9) -> dict[str, float]:
    left, right = READER.read(stored), READER.read(asked)
    comparison = COMPARER.compare(left, right)
    return dict(zip(NAMES, Featurer(WORDS, COMPARER).row(left, right, comparison, cosine), strict=True))


def test_a_row_has_one_finite_number_per_name() -> None:
    for asked in ("How do I cook rice?", "How is rice cooked at home by a beginner?", "Rice"):
        assert all(math.isfinite(value) for value in row("How do I cook rice?", asked).values())


def test_more_common_words_mean_more_overlap() -> None:
    near = row("How do I cook white rice at home?", "What is a way to cook white rice at home?")
    far = row("How do I cook white rice at home?", "What is a way to wash brown shoes at home?")
    assert near["content_overlap"] > far["content_overlap"]
    assert near["weight_overlap"] > far["weight_overlap"]
    assert near["most_unmatched"] < far["most_unmatched"]
