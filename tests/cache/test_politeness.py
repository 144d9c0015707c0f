"""Phrases that are in no training text of ours."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.verifier.politeness import LONGEST, Politeness, phrase_row


@pytest.mark.parametrize(
    "phrase",
    [
        "could you please explain to me",
        "hello dear friend could you tell me",
        "thank you so much for your kind help",
        "hola buenas tardes quisiera preguntar",
        "muchas gracias por su ayuda",
        "oi boa tarde gostaria de saber",
        "obrigado pela sua ajuda",
    ],
)
def test_politeness_is_recognised(phrase: str) -> None:
    assert Politeness.load().polite(phrase.split())


@pytest.mark.parametrize(
    "phrase",
    [
        "in swedish",
        "as a csv file",
        "not",
        "for my grandfather",
        "without onions",
        "my parrot is ill",
        "en polaco",
        "para gatos",
        "mi primo vive en lima",
        "em japones",
        "para o meu sobrinho",
    ],
)
def test_what_changes_the_answer_is_no_politeness(phrase: str) -> None:
    assert not Politeness.load().polite(phrase.split())


def test_no_words_are_polite_and_very_many_are_not() -> None:
    courtesy = Politeness.load()
    assert courtesy.polite([])
    assert not courtesy.polite(["thanks"] * (LONGEST + 1))


def test_one_bad_word_shows_in_the_row_of_a_phrase() -> None:
    mean, least, smoothed, most, *_ = phrase_row(np.array([3.0, -4.0, 3.0]), 0.0)
    assert least == -4.0 < smoothed < mean < most == 3.0
