"""Normalises Unicode of long texts in linear time.

Unicode normalisation sorts the accents of each letter, which takes quadratic time: a text of 500,000 accents would
block the event loop for minutes. So a text is normalised in pieces.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

_PIECE = 256
"""Maximum number of characters that are normalised together."""


def without_accents(text: str) -> str:
    """Normalise `text` to the form NFKD and remove the accents."""
    decomposed = _normalised("NFKD", text)
    if decomposed.isascii():
        return decomposed
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def composed(text: str) -> str:
    """Normalise the words of `text` to the form NFKC, and separate them by single spaces. In a word of more than 256
    characters, an accent at the boundary of two pieces is not combined with its letter."""
    return " ".join(_normalised("NFKC", word) for word in text.split())


def _normalised(form: Literal["NFKC", "NFKD"], text: str) -> str:
    if text.isascii():
        return text
    return "".join(unicodedata.normalize(form, text[at : at + _PIECE]) for at in range(0, len(text), _PIECE))
