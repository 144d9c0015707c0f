"""Detects English, Spanish and Portuguese by function words; None if it cannot tell."""

from __future__ import annotations

import re
from typing import Literal

Language = Literal["en", "es", "pt"]

_WORD = re.compile(r"[^\W\d_]+")
_SMALL: dict[Language, frozenset[str]] = {
    "en": frozenset(
        _WORD.findall(
            "the and of to is in that it for with are this was be by on not you which have from what how an or at they "
            "if will can would there their has its we he she his her but been were does do"
        )
    ),
    "es": frozenset(
        _WORD.findall(
            "el la los las de que y en un una es por con para del se su al lo como más pero sus le ya muy está son "
            "cuál qué cuántos cuántas cuánto cómo dónde hay también porque este esta eso cada entre sin sobre fue ser "
            "hasta cuando donde desde todo nos hace puede tiene"
        )
    ),
    "pt": frozenset(
        _WORD.findall(
            "o os as de que e em um uma é por com para do da dos das na nas não se seu sua ao mais mas como são está "
            "qual quais quantos quantas quanto você também porque este esta isso cada entre sem sobre foi ser até "
            "quando onde desde tudo nos pela pelo há pode tem"
        )
    ),
}
"""Function words. "a" and "no" are left out, which are words of all three."""
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\$[^$\n]*\$", re.DOTALL)
_READ = 4000
"""Characters of a text that are looked at."""
_LEAST_HITS, _LEAST_SHARE, _MARGIN = 3, 0.15, 1.5
"""So many small words, so much of all words, and so many times as many as of the next language."""
_ENDS = 120
"""A longer question is asked at its beginning or its end, the rest may be quoted; both must agree."""
_TOLD = re.compile(
    r"\b(?:translat|tradu[cz]|language|idioma|lengua|língua|linguagem|english|ingl[eéê]s|spanish|español|espanhol|"
    r"castellano|portugu|french|francés|francês|german|alem[aá]n|alemão|italian|chinese|chin[eoê]s|japan|japon)",
    re.IGNORECASE,
)
_LEAST_LETTERS = 20


def language(text: str) -> Language | None:
    """The language of `text` (its code and formulas left out); None when there is too little to tell."""
    words = [word.lower() for word in _WORD.findall(_CODE.sub(" ", text[:_READ]))]
    hits: list[tuple[int, Language]] = sorted(
        ((sum(word in small for word in words), name) for name, small in _SMALL.items()), reverse=True
    )
    (most, found), (next_most, _), _ = hits
    if most < _LEAST_HITS or most < _LEAST_SHARE * len(words) or most < _MARGIN * next_most:
        return None
    return found


def asked_in(text: str) -> Language | None:
    """The language that a question of the user's is asked in; None when its beginning and end do not agree."""
    if len(text) <= 2 * _ENDS:
        return language(text)
    begins, ends = language(text[:_ENDS]), language(text[-_ENDS:])
    return begins if begins == ends else None


def names_one(text: str) -> bool:
    """Does `text` speak of languages? Then an answer in another one may be what was wanted."""
    return _TOLD.search(text[:_READ]) is not None or _TOLD.search(text[_READ:][-_READ:]) is not None


def foreign_script(question: str, answer: str) -> bool:
    """Is the question in Latin letters, and most of the answer not?"""
    if answer.isascii():
        return False
    asked, said = _latin(question[:_READ]), _latin(_CODE.sub(" ", answer[:_READ]))
    return asked is not None and said is not None and asked > 0.95 and said < 0.5


def _latin(text: str) -> float | None:
    """Share of Latin letters (up to U+024F) among the letters; None of too few."""
    letters = [letter for letter in text if letter.isalpha()]
    if len(letters) < _LEAST_LETTERS:
        return None
    return sum(letter < "\u0250" for letter in letters) / len(letters)
