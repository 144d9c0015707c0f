"""Detects English, Spanish and Portuguese by their function words."""

from __future__ import annotations

import re

from gateway.domain.text.function_words import FUNCTION_WORDS, Language

_WORD = re.compile(r"[^\W\d_]+")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\$[^$\n]*\$", re.DOTALL)
_READ = 4000
"""Maximum characters of a text that are read."""
_LEAST_HITS, _LEAST_SHARE, _MARGIN = 3, 0.15, 1.5
"""Conditions for recognising a language: minimum number of its function words in the text, minimum share of these words
among all words, and minimum ratio of their number to the number of function words of any other language."""
_ENDS = 120
"""Number of characters that are read at each end of a long question. The middle is not read, because it may be a
quotation."""
_LANGUAGE_WORD = re.compile(
    r"\b(?:translat|tradu[cz]|language|idioma|lengua|língua|linguagem|english|ingl[eéê]s|spanish|español|espanhol|"
    r"castellano|portugu|french|francés|francês|german|alem[aá]n|alemão|italian|chinese|chin[eoê]s|japan|japon)",
    re.IGNORECASE,
)
_LEAST_LETTERS = 20


def language(text: str) -> Language | None:
    """The language of `text`. Code and formulas are ignored. None if the language is unclear."""
    words = [word.lower() for word in _WORD.findall(_CODE.sub(" ", text[:_READ]))]
    hits: list[tuple[int, Language]] = sorted(
        ((sum(word in small for word in words), name) for name, small in FUNCTION_WORDS.items()), reverse=True
    )
    (most, found), (next_most, _), _ = hits
    if most < _LEAST_HITS or most < _LEAST_SHARE * len(words) or most < _MARGIN * next_most:
        return None
    return found


def asked_in(text: str) -> Language | None:
    """The language of a user's question. None if it is unclear, or if beginning and end of the question have
    different languages.
    """
    if len(text) <= 2 * _ENDS:
        return language(text)
    begins, ends = language(text[:_ENDS]), language(text[-_ENDS:])
    return begins if begins == ends else None


def names_one(text: str) -> bool:
    """Whether `text` mentions a language or translation. If so, an answer in another language than the question may be
    correct."""
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
