from __future__ import annotations

import pytest

from gateway.cache.verifier.differences import Comparer, Comparison
from gateway.cache.verifier.lexicon import load_words
from gateway.cache.verifier.text import Reader
from gateway.cache.verifier.verify import Verifier

WORDS = load_words()
READER, COMPARER = Reader(WORDS), Comparer(WORDS)


def compare(stored: str, asked: str, language: str = "en") -> Comparison:
    return COMPARER.compare(READER.read(stored, language), READER.read(asked, language))


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("Who killed John?", "Who did John kill?"),
        ("Who stopped Anna?", "Whom did Anna stop?"),
        ("Who studies birds?", "Who do birds study?"),
        ("Who taught Plato?", "Who did Plato teach?"),
        ("Who killed John?", "Who was killed by John?"),
        ("Who was John killed by in 1963?", "Who did John kill during 1963?"),
        ("By whom was John killed?", "Who did John kill?"),
        ("Who loves him?", "Who does he love?"),
        ("What causes anxiety?", "What does anxiety cause?"),
        ("Which animals eat lions?", "What animals do lions eat?"),
        ("Who were the people who influenced Kant?", "Who did Kant influence?"),
    ],
)
def test_the_one_who_acts_is_not_the_one_acted_upon(stored: str, asked: str) -> None:
    assert compare(stored, asked).conflict == "roles"
    assert compare(asked, stored).conflict == "roles"


@pytest.mark.parametrize(
    ("language", "stored", "asked"),
    [
        ("es", "¿Quién contrató a Marta en el último año?", "¿A quién contrató Marta el año pasado?"),
        ("es", "¿Quiénes vencieron a los persas?", "¿A quiénes vencieron entonces los persas?"),
        ("pt", "Quem contratou o João no último ano?", "Quem o João contratou no ano passado?"),
        ("pt", "Quem matou o João em Lisboa?", "A quem o João matou lá em Lisboa?"),
    ],
)
def test_spanish_and_portuguese_show_it_by_the_order_or_by_a(language: str, stored: str, asked: str) -> None:
    assert "roles" in compare(stored, asked, language).signs
    assert not Verifier.load().verify(stored, asked, 0.97).accepted


@pytest.mark.parametrize(
    ("language", "stored", "asked"),
    [
        ("en", "Who killed John?", "Who was John killed by?"),
        ("en", "Who did John kill?", "Who was killed by John?"),
        ("en", "Who did John kill?", "Whom did John kill?"),
        ("en", "Who wrote Hamlet?", "Who did write Hamlet?"),
        ("en", "Which companies did Google buy?", "Which companies were bought by Google?"),
        ("en", "What does serendipity mean?", "What means serendipity?"),
        ("en", "Which films did Ann act in?", "In which films did Ann act?"),
        ("en", "What movies did Brad Pitt star in?", "Which films starred Brad Pitt?"),
        ("en", "Who does the voice of Elsa?", "Who voices Elsa?"),
        ("en", "Which courses have I completed already?", "What courses do I have completed already?"),
        ("en", "Who won the cup in 2010?", "In 2010, who won the cup?"),
        ("es", "¿A quién debo llamar si pierdo la tarjeta?", "¿Quién debo llamar si pierdo la tarjeta?"),
        ("es", "¿Quién ganó la copa en 2010?", "¿En 2010 quién ganó la copa?"),
        ("pt", "Quem ganhou a copa em 2010?", "Quem em 2010 ganhou a copa?"),
    ],
)
def test_a_question_for_the_same_party_has_no_such_sign(language: str, stored: str, asked: str) -> None:
    assert "roles" not in compare(stored, asked, language).signs
    assert "roles" not in compare(asked, stored, language).signs


def test_equal_questions_in_another_voice_are_still_accepted() -> None:
    verifier = Verifier.load()
    assert verifier.verify("Who killed John?", "Who was John killed by?", 0.97).accepted
    assert verifier.verify("Which companies did Google buy?", "Which companies were bought by Google?", 0.97).accepted
    assert not verifier.verify("Who killed John?", "Who did John kill?", 0.97).accepted
