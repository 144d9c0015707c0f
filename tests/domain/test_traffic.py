"""Every request is in one of 80 traffic classes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.request import Turn
from gateway.domain.traffic import CLASSES, LONG_TOKENS, language_of, traffic_class
from tests.routing.conftest import EASY, SPANISH, request

CALLED = [Turn(0, "user", EASY), Turn(1, "assistant", "", calls=("c",)), Turn(2, "tool", "12", results=("c",))]
ANSWERED = [Turn(0, "user", EASY), Turn(1, "assistant", "Paris."), Turn(2, "user", "¿Y cuál es la capital de España?")]
TOOLS = frozenset({"tools"})


@pytest.mark.parametrize(
    ("fields", "tokens", "kind"),
    [
        ({}, 50, "en/text/opening"),
        ({"turns": [Turn(0, "user", SPANISH)]}, 50, "es/text/opening"),
        ({"turns": ANSWERED}, 50, "es/text/follow_up"),
        ({"turns": CALLED, "needs": TOOLS}, 50, "en/tools/after_tool"),
        ({"needs": TOOLS | {"vision"}}, 50, "en/tools/opening"),
        ({"needs": frozenset({"vision", "json_schema"})}, 50, "en/image/opening"),
        ({"needs": frozenset({"json_schema"})}, LONG_TOKENS, "en/schema/opening"),
        ({}, LONG_TOKENS, "en/long/opening"),
        ({"agent": "claude_code"}, 50, "en/text/background"),
        ({"agent": "claude_code", "needs": TOOLS}, 50, "en/tools/opening"),
        ({"turns": []}, 0, "other/text/opening"),
    ],
)
def test_the_class_is_language_needs_and_step(fields: dict[str, Any], tokens: int, kind: str) -> None:
    assert traffic_class(request(**fields), tokens) == kind
    assert kind in CLASSES


def test_the_set_is_closed_and_fits_its_column() -> None:
    assert len(CLASSES) == 80
    assert max(map(len, CLASSES)) <= 32


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("¿Qué hora es?", "es"),
        ("Escribe un poema sobre el mar y la luna", "es"),
        ("Qual é a capital do Brasil?", "pt"),
        ("Explique a diferença entre TCP e UDP", "pt"),
        ("fix the bug in main.py", "en"),
        ('(the) capital "of" Spain?', "en"),
        ("de que", "other"),  # both Spanish and Portuguese
        ("def f(x): return x", "other"),
        ("日本の首都はどこですか", "other"),
        ("", "other"),
    ],
)
def test_the_language_is_known_by_its_function_words(question: str, language: str) -> None:
    assert language_of(question) == language
