from __future__ import annotations

import numpy as np

from gateway.cache.verifier.vocabulary import Vocabulary

VOCABULARY = Vocabulary.load()


def near(left: str, right: str) -> float:
    a, b = VOCABULARY.vector(left), VOCABULARY.vector(right)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_a_common_word_is_common_in_its_language() -> None:
    assert VOCABULARY.zipf("the")[0] > 7 > VOCABULARY.zipf("kitchen")[0] > 3
    assert VOCABULARY.zipf("cocina")[1] > 3
    assert VOCABULARY.zipf("cozinha")[2] > 3


def test_a_word_that_nobody_writes_is_unknown() -> None:
    assert not any(VOCABULARY.zipf("kitchhen"))
    assert not VOCABULARY.known("kitchhen", "en")
    assert VOCABULARY.known("kitchen", "es")


def test_like_words_lie_near_each_other() -> None:
    assert near("thanks", "grateful") > near("thanks", "kitchen") + 0.2


def test_what_has_no_pieces_has_no_vector() -> None:
    assert not VOCABULARY.vector("").any()
    assert not VOCABULARY.vector("x" * 100).any()
    assert not VOCABULARY.sense("").any()
    assert not VOCABULARY.sense("x" * 100).any()


def test_senses_are_unit_vectors_and_tell_what_means_the_same_from_what_only_stands_alike() -> None:
    fee, cost, phone = (VOCABULARY.sense(word) for word in ("fee", "cost", "phone"))
    assert np.isclose(np.linalg.norm([fee, cost, phone], axis=1), 1, atol=1e-3).all()
    assert fee @ cost > fee @ phone + 0.3
