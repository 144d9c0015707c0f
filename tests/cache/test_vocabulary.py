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


def test_the_rarer_a_word_the_more_it_says() -> None:
    said = [VOCABULARY.rarity(word, "en") for word in ("the", "water", "kitchen", "kitchhen")]
    assert said == sorted(said)
    assert (said[0] < 0.1, said[-1]) == (True, 1.0)
