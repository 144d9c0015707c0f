"""Shortens strings from clients and providers that are kept longer than the request."""

from __future__ import annotations

from hashlib import blake2b

LONGEST_MODEL = 256
"""Characters of a model's name; no vendor's name has half as many."""
_DIGEST_BYTES = 16


def cut(text: str, most: int) -> str:
    """The first characters of `text`, at most `most` in all, including a note that it was longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def cut_apart(text: str, most: int) -> str:
    """As `cut`, with a hash of the whole at the end, so that different texts stay different."""
    if len(text) <= most:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{text[: most - len(digest) - 1]}~{digest}"
