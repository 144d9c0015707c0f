from __future__ import annotations

import pytest

from gateway.backends.cascade.languages import asked_in, foreign_script, language, names_one

ENGLISH = "What is the name of the river that runs through the city in which you were born, and how long is it?"
SPANISH = "¿Cuál es el nombre del río que pasa por la ciudad en la que naciste, y cómo es de largo?"
PORTUGUESE = "Qual é o nome do rio que passa pela cidade em que você nasceu, e de que comprimento ele é?"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ENGLISH, "en"),
        (SPANISH, "es"),
        (PORTUGUESE, "pt"),
        ("Quantos dias há em uma semana? Responda com o número e não explique mais nada.", "pt"),
        ("Cuántos días hay en una semana, y por qué no son ocho los que tiene el calendario?", "es"),
        ("12 * 7 = 84", None),
        ("Paris", None),
        ("```python\nfor the in of: and(to)\n```", None),
        ("", None),
    ],
)
def test_a_language_is_told_by_its_small_words_or_not_at_all(text: str, found: str | None) -> None:
    assert language(text) == found


def test_a_long_question_with_a_quotation_in_another_language_is_in_none() -> None:
    assert asked_in(SPANISH + " " + ENGLISH * 8) is None
    assert asked_in(ENGLISH * 10) == "en"


def test_who_speaks_of_a_language_may_want_it() -> None:
    assert names_one("Translate this: hello")
    assert names_one("Responda em inglês, por favor")
    assert not names_one("How many apples are there?")


def test_another_script_than_the_questions_is_foreign() -> None:
    assert foreign_script(ENGLISH, "这条河流经我出生的城市,它的名字叫做黄浦江,长度大约是一百一十三公里。")
    assert not foreign_script(ENGLISH, SPANISH)
    assert not foreign_script("你出生的城市里流过的河叫什么名字?它有多长?请用一句话回答这个问题。", ENGLISH)
