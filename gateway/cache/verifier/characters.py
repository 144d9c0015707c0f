"""Finds characters that the verifier does not read as words: invisible characters, emoji, symbols, other scripts."""

from __future__ import annotations

import re
import unicodedata

PUNCTUATION = "…’‘“”„«»‹›´¿¡–—‐‑·•。、！？，；：（）「」『』《》【】・؟،؛।"
"""Punctuation characters outside ASCII. Two texts that differ only in these characters have the same answer."""
SPACING = "\t\n\r\xa0\u2009\u202f\u3000"
"""Spacing characters in addition to the space itself."""
_LAST_LATIN = 0x17F
"""The last code point of the blocks Latin-1 and Latin Extended-A. These blocks contain every letter of the languages
that the verifier reads, and of similar languages."""


def _accented() -> dict[str, str]:
    """Maps each letter with an accent to the ASCII letter without it, followed by one combining mark."""
    parts = {chr(code): unicodedata.normalize("NFD", chr(code)) for code in range(0x80, _LAST_LATIN + 1)}
    return {letter: pair for letter, pair in parts.items() if len(pair) == 2 and pair[0].isalpha()}


def _plain() -> re.Pattern[str]:
    accented = _accented()
    letters: dict[str, str] = {}
    for pair in sorted(accented.values()):
        letters[pair[1]] = letters.get(pair[1], "") + pair[0]
    marks, listed = "".join(letters), "".join(accented) + PUNCTUATION + SPACING
    pairs = "|".join(f"[{of}]{mark}" for mark, of in letters.items())  # a mark on any other letter is significant
    return re.compile(rf"(?:[ -~{listed}](?![{marks}]))+|{pairs}")


_PLAIN = _plain()


def beyond(text: str) -> str:
    """The characters of `text` that the verifier does not read, in order and in lower case.

    Texts that differ in these characters are different questions. Do not normalise them, because similar letters
    may differ in meaning.
    """
    found = _PLAIN.sub("", text)
    return found.casefold() if unicodedata.is_normalized("NFKC", found) else found
