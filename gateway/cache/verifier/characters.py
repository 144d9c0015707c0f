"""Finds characters that the verifier does not read as words: invisible ones, emoji, symbols, other scripts."""

from __future__ import annotations

import re
import unicodedata

PUNCTUATION = "…’‘“”„«»‹›´¿¡–—‐‑·•。、！？，；：（）「」『』《》【】・؟،؛।"
"""Beside ASCII's: marks that change no answer where nothing else differs."""
SPACING = "\t\n\r\xa0\u2009\u202f\u3000"
"""Beside the space itself."""
_LAST_LATIN = 0x17F
"""Latin-1 and Latin Extended-A: every letter of the languages that the verifier reads, and of their neighbours."""


def _accented() -> dict[str, str]:
    """Accented letter → the same as an ASCII letter with one combining mark."""
    parts = {chr(code): unicodedata.normalize("NFD", chr(code)) for code in range(0x80, _LAST_LATIN + 1)}
    return {letter: pair for letter, pair in parts.items() if len(pair) == 2 and pair[0].isalpha()}


def _plain() -> re.Pattern[str]:
    accented = _accented()
    letters: dict[str, str] = {}
    for pair in sorted(accented.values()):
        letters[pair[1]] = letters.get(pair[1], "") + pair[0]
    marks, listed = "".join(letters), "".join(accented) + PUNCTUATION + SPACING
    pairs = "|".join(f"[{of}]{mark}" for mark, of in letters.items())  # a mark on any other letter says something
    return re.compile(rf"(?:[ -~{listed}](?![{marks}]))+|{pairs}")


_PLAIN = _plain()


def beyond(text: str) -> str:
    """The characters of `text`, in order and without case, that are no plain Latin letter, ASCII digit, ASCII sign,
    listed punctuation or spacing. Questions that differ in them are two: to a model they are text like any other.

    Nothing is normalised first: a letter that only looks like another, or stands for it in a formula, is another.
    """
    found = _PLAIN.sub("", text)
    return found.casefold() if unicodedata.is_normalized("NFKC", found) else found
