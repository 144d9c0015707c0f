from __future__ import annotations

import pytest

from gateway.domain.text.normalisation import composed, without_accents

ACCENTS = "a" + "\u0301\u0323" * 500_000
"""One letter with a million accents. Sorted as a whole, they take minutes."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("canción não Ñandú", "cancion nao Nandu"),
        ("①② ﬁn", "12 fin"),
        ("plain", "plain"),
        ("é" * 1000, "e" * 1000),
        ("e\u0301" * 1000, "e" * 1000),
        (ACCENTS, "a"),
    ],
)
@pytest.mark.timeout(30)
def test_accents_are_removed_in_linear_time(text: str, expected: str) -> None:
    assert without_accents(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ｌｉｍａ　is  ﬁne\n", "Lima is fine"),
        ("e\u0301te\u0301", "été"),
        ("e\u0301 " * 1000, " ".join(["é"] * 1000)),
        ("x" * 300 + " ﬁ", "x" * 300 + " fi"),
    ],
)
def test_words_are_composed(text: str, expected: str) -> None:
    assert composed(text) == expected


@pytest.mark.timeout(30)
def test_words_are_composed_in_linear_time() -> None:
    assert composed(ACCENTS).startswith("ạ")
