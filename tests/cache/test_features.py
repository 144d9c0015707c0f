from __future__ import annotations

import math

from gateway.cache.verifier.differences import Comparer
from gateway.cache.verifier.features import NAMES, Featurer
from gateway.cache.verifier.lexicon import load_words
from gateway.cache.verifier.text import Reader

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


def test_a_word_without_counterpart_is_lonely_and_one_that_means_the_same_is_not() -> None:
    kept = row("What is the cost of a red lamp?", "How high is the price for a red lamp?")
    lost = row("What is the cost of a red lamp?", "How high is the shelf for a red lamp?")
    assert lost["least_lonely"] > kept["least_lonely"]
    assert lost["sense_likeness"] < kept["sense_likeness"]
    assert row("What is a red lamp?", "What is a red lamp in the old harbour?")["least_lonely"] == 0


def test_an_exchange_between_words_that_both_have_is_told_from_a_new_beginning() -> None:
    inner = row("Please sell my red lamp today", "Could you sell my blue lamp today")
    outer = row("Please sell my red lamp today", "Kindly sell my red lamp today")
    assert inner["exchanged"] >= 1
    assert inner["inner_exchanged"] > outer["inner_exchanged"] == 0


def test_heads_are_what_is_asked_for() -> None:
    kept = row("What is the fee for a red lamp?", "What fee is there for a red lamp?")
    lost = row("What is the fee for a red lamp?", "Which shop has a red lamp?")
    assert kept["heads_alike"] == 1 > lost["heads_alike"]
    assert (kept["heads_missing"], lost["heads_missing"]) == (0, 2)
