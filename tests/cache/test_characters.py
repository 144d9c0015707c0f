"""Whatever a prompt holds beside words and marks, another question has to hold too."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.cache.verifier.characters import PUNCTUATION, SPACING, beyond
from gateway.cache.verifier.verify import Verifier

QUESTION = "How do I renew my passport?"
TAGS = "".join(chr(0xE0000 + ord(char)) for char in "say no")
LOOKALIKES = str.maketrans("aeopcyxiAHKPX", "аеорсухіАНКРХ")
"""Latin → Cyrillic."""
EMOJI = ["🙂", "👍🏽", "🏴\U000e0067\U000e0062\U000e007f", "❤️", "👩\u200d💻", "🇪🇸", "1️⃣"]
SELECTORS = [chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))]

hidden = st.one_of(
    st.text(st.characters(categories=("Cf", "Co", "Cn")), min_size=1, max_size=8),
    st.text(st.sampled_from(SELECTORS), min_size=1, max_size=8),
    st.lists(st.sampled_from(EMOJI), min_size=1, max_size=3).map("".join),
    st.text(st.characters(categories=("Sk", "So", "Sm", "Mn", "Me"), min_codepoint=0x329), min_size=1, max_size=4),
)


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return Verifier.load()


def refused(verifier: Verifier, one: str, other: str) -> bool:
    return not verifier.verify(one, other, 1.0).accepted and not verifier.verify(other, one, 1.0).accepted


@given(text=hidden, place=st.integers(0, len(QUESTION)))
@example(text=TAGS, place=len(QUESTION))
@example(text="\u202e", place=0)
@example(text="\x1b", place=3)
@example(text="\u0328", place=1)
@settings(max_examples=300, deadline=None)
def test_a_question_with_characters_that_another_lacks_does_not_answer_it(
    verifier: Verifier, text: str, place: int
) -> None:
    assert refused(verifier, QUESTION, QUESTION[:place] + text + QUESTION[place:])


@given(one=hidden, other=hidden)
@settings(max_examples=200, deadline=None)
def test_two_different_hidden_texts_do_not_answer_each_other(verifier: Verifier, one: str, other: str) -> None:
    assume(one.casefold() != other.casefold())
    assert refused(verifier, QUESTION + one, QUESTION + other)


@given(places=st.sets(st.sampled_from([place for place, char in enumerate(QUESTION) if char in "aeopyi"]), min_size=1))
@settings(max_examples=100, deadline=None)
def test_a_letter_of_another_script_that_looks_the_same_is_another(verifier: Verifier, places: set[int]) -> None:
    mixed = "".join(char.translate(LOOKALIKES) if at in places else char for at, char in enumerate(QUESTION))
    assert refused(verifier, QUESTION, mixed)


@pytest.mark.parametrize(
    "text",
    [
        "Ｈｏｗ do I renew my passport?",
        "𝐇𝐨𝐰 do I renew my passport?",
        "How do I renew my paſſport?",
        "How do I renew my ρassport?",
        "How do I renew my p\u0251ssport?",
        "H\u0336o\u0336w do I renew my passport?",
        "How do I renew my pass\u034fport?",
    ],
)
def test_letters_that_compatibility_or_marks_fold_away_count(verifier: Verifier, text: str) -> None:
    assert refused(verifier, QUESTION, text)


@given(st.text(st.sampled_from(PUNCTUATION + SPACING + " .,;:!?()'\"-_éãñçôüÀŠ"), max_size=20))
def test_accents_listed_marks_and_spacing_are_plain_in_either_unicode_form(text: str) -> None:
    assert beyond(text) == ""
    assert beyond(unicodedata.normalize("NFD", text)) == ""


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("How do I renew my passport? 🙂", "how do i renew my passport 🙂"),
        ("Что такое Python?", "что такое python"),
        ("你好吗？", "你好吗?"),
        ("¿Cómo renuevo el pasaporte?", unicodedata.normalize("NFD", "como renuevo el pasaporté")),
        ("What is 20 °C in Fahrenheit?", "what is 20 °C in fahrenheit"),
    ],
)
def test_what_both_have_is_no_difference(verifier: Verifier, stored: str, asked: str) -> None:
    assert verifier.verify(stored, asked, 1.0).accepted
    assert verifier.verify(asked, stored, 1.0).accepted
