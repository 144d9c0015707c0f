"""Unicode normalisation of long texts in linear time.

Normalisation sorts the accents of one letter, which takes quadratic time: a text of 500,000 accents would keep the
event loop busy for minutes. So a text is normalised in pieces.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

_PIECE = 256
"""Maximum number of characters that are normalised together."""


def without_accents(text: str) -> str:
    """`text` in the normal form NFKD, without accents."""
    decomposed = _normalised("NFKD", text)
    if decomposed.isascii():
        return decomposed
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def composed(text: str) -> str:
    """The words of `text` in the normal form NFKC, separated by single spaces. In words of more than 256 characters, an
    accent at the boundary of two pieces stays apart from its letter."""
    return " ".join(_normalised("NFKC", word) for word in text.split())


def _normalised(form: Literal["NFKC", "NFKD"], text: str) -> str:
    if text.isascii():
        return text
    return "".join(unicodedata.normalize(form, text[at : at + _PIECE]) for at in range(0, len(text), _PIECE))
