"""Removes a provider's API key from texts that the provider wrote. The text may contain the whole key, an encoded form
of it, or a part of it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, unquote

CONCEALED = "[key]"
_SHORT_KEY = 8
"""Number of characters below which a key (`none`, `EMPTY`) is not a secret. Parts of such a key are ordinary words."""
_FRAGMENT = 12
"""Number of consecutive characters of a key whose occurrence in a text cannot be a coincidence."""
_START, _END = 6, 4
"""Minimum number of characters with which a provider identifies a key: at the start of the key, and at its end."""
_BESIDE_MASK = 3
"""Number of characters of a key that identify it if they stand next to a mask such as `***`."""
_MASK = re.compile(r"\*+|[•●…]+|\.{2,}|x{4,}|-{4,}|_{4,}")


class Concealer:
    """Removes one key from texts. This takes tens of microseconds per text, so the class is used only for errors and
    other rare texts.
    """

    def __init__(self, key: str) -> None:
        """`key`: the key to remove. If it is empty, nothing is removed."""
        self._short = len(key) < _SHORT_KEY
        self._forms = sorted(set(_forms(key)), key=len, reverse=True) if not self._short else [key] if key else []
        self._key = key.lower()
        self._word = re.compile(rf"[\w\-.*•●…%{re.escape(''.join({*key}))}]+")
        """Matches sequences of characters that occur in the key or in masks."""

    def __call__(self, text: str) -> str:
        """Replace in `text` the key, its usual encodings, and those parts of it that would identify it."""
        for form in self._forms:
            text = text.replace(form, CONCEALED)
        return (
            text
            if self._short
            else self._word.sub(lambda found: CONCEALED if self._tells(found[0]) else found[0], text)
        )

    def _tells(self, word: str) -> bool:
        """Return whether `word` contains enough of the key to identify it."""
        key, word = self._key, unquote(word).lower()
        parts = _MASK.split(word)
        if len(parts) > 1:
            first, last = parts[0], parts[-1]
            return any(
                first.endswith(key[:shown]) or last.startswith(key[-shown:])
                for shown in range(_BESIDE_MASK, len(key) + 1)
            ) or any(self._tells(part) for part in parts)
        length = min(_FRAGMENT, len(key))
        if any(word[at : at + length] in key for at in range(len(word) - length + 1)):
            return True
        word = word.rstrip(".")
        return (len(word) >= _START and key.startswith(word)) or (len(word) >= _END and key.endswith(word))


def _forms(key: str) -> Iterator[str]:
    """Yield the forms in which a text may contain the key: plain, URL-encoded, hexadecimal, and Base64. There are three
    forms of Base64; each lacks the characters that depend on neighbouring text."""
    raw = key.encode()
    yield from (key, quote(key, safe=""), raw.hex(), raw.hex().upper())
    for before, first in enumerate((0, 2, 3)):
        encoded = b64encode(b"\0" * before + raw).decode()[first : (before + len(raw)) * 8 // 6]
        yield from (encoded, encoded.replace("+", "-").replace("/", "_"))
