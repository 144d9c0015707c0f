"""Detects English, Spanish and Portuguese by their function words."""

from __future__ import annotations

import re
from typing import Literal

Language = Literal["en", "es", "pt"]

_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS: dict[Language, frozenset[str]] = {
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
"""Function words. "a" and "no" are omitted, because they occur in more than one of the languages."""
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\$[^$\n]*\$", re.DOTALL)
_READ = 4000
"""Maximum characters of a text that are read."""
_LEAST_HITS, _LEAST_SHARE, _MARGIN = 3, 0.15, 1.5
"""Conditions for recognising a language: minimum number of function words, their minimum share of all words, and
minimum ratio to the second language."""
_ENDS = 120
"""Number of characters read at each end of a longer question, because the middle may be a quotation."""
_LANGUAGE_WORD = re.compile(
    r"\b(?:translat|tradu[cz]|language|idioma|lengua|língua|linguagem|english|ingl[eéê]s|spanish|español|espanhol|"
    r"castellano|portugu|french|francés|francês|german|alem[aá]n|alemão|italian|chinese|chin[eoê]s|japan|japon)",
    re.IGNORECASE,
)
_LEAST_LETTERS = 20


def language(text: str) -> Language | None:
    """The language of `text` without its code and formulas; None if that is unclear."""
    words = [word.lower() for word in _WORD.findall(_CODE.sub(" ", text[:_READ]))]
    hits: list[tuple[int, Language]] = sorted(
        ((sum(word in small for word in words), name) for name, small in _FUNCTION_WORDS.items()), reverse=True
    )
    (most, found), (next_most, _), _ = hits
    if most < _LEAST_HITS or most < _LEAST_SHARE * len(words) or most < _MARGIN * next_most:
        return None
    return found


def asked_in(text: str) -> Language | None:
    """The language of a user's question; None if unclear, or if the beginning and the end of a long text differ."""
    if len(text) <= 2 * _ENDS:
        return language(text)
    begins, ends = language(text[:_ENDS]), language(text[-_ENDS:])
    return begins if begins == ends else None


def names_one(text: str) -> bool:
    """Whether `text` mentions a language or translation. If so, an answer in another language may be correct."""
    return _LANGUAGE_WORD.search(text[:_READ]) is not None or _LANGUAGE_WORD.search(text[_READ:][-_READ:]) is not None


def foreign_script(question: str, answer: str) -> bool:
    """Whether the question is in Latin letters but most of the answer is not."""
    if answer.isascii():
        return False
    asked, answered = _latin(question[:_READ]), _latin(_CODE.sub(" ", answer[:_READ]))
    return asked is not None and answered is not None and asked > 0.95 and answered < 0.5


def _latin(text: str) -> float | None:
    """Share of Latin letters (up to U+024F) among the letters of `text`; None if it has too few letters."""
    letters = [letter for letter in text if letter.isalpha()]
    if len(letters) < _LEAST_LETTERS:
        return None
    return sum(letter < "\u0250" for letter in letters) / len(letters)
