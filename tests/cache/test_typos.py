from __future__ import annotations

import pytest

from gateway.cache.verifier.text import Token
from gateway.cache.verifier.typos import same_word
from gateway.cache.verifier.vocabulary import Vocabulary

VOCABULARY = Vocabulary.load()


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("kitchen", "kicthen", True),
        ("kitchen", "kitchn", True),
        ("kitchens", "kitchen", True),
        ("cities", "city", True),
        ("mouse", "house", False),
        ("trains", "trails", False),
        ("legal", "illegal", False),
        ("on", "of", False),
        ("kitchen", "kitzhen", False),  # a word that the vocabulary does not know is a word all the same
        ("grieved", "grieves", False),
    ],
)
def test_a_slip_is_told_from_another_word(left: str, right: str, same: bool) -> None:
    assert same_word(Token(left, left, "word"), Token(right, right, "word"), VOCABULARY, "en") is same


def test_names_and_quotations_are_what_they_are() -> None:
    left, right = Token("kitchen", "kitchen", "word"), Token("kicthen", "kicthen", "word")
    assert not same_word(left, Token("kicthen", "kicthen", "word", name=True), VOCABULARY, "en")
    assert not same_word(left, Token("kicthen", "kicthen", "word", quoted=True), VOCABULARY, "en")
    assert not same_word(Token("5", "5", "number"), right, VOCABULARY, "en")


@pytest.mark.parametrize(
    ("left", "right", "language", "same"),
    [
        ("digo", "diga", "es", False),
        ("materia", "material", "es", False),
        ("lido", "ligo", "pt", False),
        ("julga", "julgar", "pt", False),
        ("zurcir", "zurcr", "es", True),
        ("zurcir", "zucrir", "es", True),
        ("costurar", "costtrurar", "pt", False),
        ("costurar", "costuurar", "pt", True),
    ],
)
def test_where_few_words_are_known_only_what_no_word_looks_like_is_a_slip(
    left: str, right: str, language: str, same: bool
) -> None:
    assert same_word(Token(left, left, "word"), Token(right, right, "word"), VOCABULARY, language) is same
