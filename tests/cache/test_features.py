from __future__ import annotations

import math

import pytest

from gateway.cache.verifier.differences import Comparer
from gateway.cache.verifier.features import NAMES
from gateway.cache.verifier.features import row as features
from gateway.cache.verifier.lexicon import load_words
from gateway.cache.verifier.text import Reader

WORDS = load_words()
READER, COMPARER = Reader(WORDS), Comparer(WORDS)


def row(stored: str, asked: str, cosine: float = 0.9) -> dict[str, float]:
    left, right = READER.read(stored), READER.read(asked)
    comparison = COMPARER.compare(left, right)
    return dict(zip(NAMES, features(left, right, comparison, cosine, WORDS.vocabulary), strict=True))


def test_a_row_has_one_finite_number_per_name() -> None:
    for asked in ("How do I cook rice?", "How is rice cooked at home by a beginner?", "Rice"):
        assert all(math.isfinite(value) for value in row("How do I cook rice?", asked).values())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I cook white rice at home?", "What is a way to wash brown shoes?"),
        ("What is the cost of a red lamp?", "How much does a red lamp cost in the old harbour?"),
        ("¿Cómo renuevo el pasaporte?", "Quiero renovar mi pasaporte, ¿qué hago?"),
    ],
)
def test_features_are_the_same_when_the_questions_change_places(one: str, other: str) -> None:
    assert row(one, other) == pytest.approx(row(other, one))


def test_more_common_words_mean_more_overlap() -> None:
    near = row("How do I cook white rice at home?", "What is a way to cook white rice at home?")
    far = row("How do I cook white rice at home?", "What is a way to wash brown shoes at home?")
    assert near["letters"] > far["letters"]
    assert near["overlap"] > far["overlap"]
    assert near["most_unmatched"] < far["most_unmatched"]
    assert near["most_rarest"] < far["most_rarest"]


def test_what_is_only_added_leaves_the_shorter_question_contained() -> None:
    added = row("What is a red lamp?", "What is a red lamp in the old harbour?")
    assert added["contained"] == 1 > added["overlap"]
    assert added["least_unmatched"] == 0 < added["most_unmatched"]
