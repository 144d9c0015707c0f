"""Shortens texts from clients and providers that are stored for longer than the request takes."""

from __future__ import annotations

from hashlib import blake2b

LONGEST_MODEL = 256
"""Maximum characters of a model's name. No vendor has a name of half this length."""
_DIGEST_BYTES = 16


def cut(text: str, most: int) -> str:
    """Shorten `text` to at most `most` characters. A shortened text ends with a note that says so."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def cut_apart(text: str, most: int) -> str:
    """Shorten `text` to at most `most` characters. A shortened text ends with a hash of the whole text, so that
    different texts stay different.
    """
    if len(text) <= most:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{text[: most - len(digest) - 1]}~{digest}"
