"""Facts about a request's bytes that several packages need: counts of JSON punctuation, and which words occur."""

from __future__ import annotations

import re
from dataclasses import dataclass

WORDS = frozenset(
    {
        *(b"file_id", b'"container', b"server_url", b'"mcp"', b"connector_id", b"vector_store", b"skill_id"),
        *(b"collection_ids", b"image_generation_call", b"cache_control", b"prompt_cache_breakpoint"),
        *(b'"cache_control"', b'"thinking_blocks"'),
    }
)
"""The words that a scan looks for."""
LONGEST_WORD = max(map(len, WORDS))
MODEL = b'"model"'
ESCAPED_LETTER = re.compile(rb"\\u00(?:5[fF]|[46][0-9a-fA-F]|[57][0-9aA])")
"""A JSON escape for a letter or `_`. Clients need none, and one could spell any field name."""


@dataclass(frozen=True, slots=True)
class BodyScan:
    """The facts of one body. They are valid for this `bytes` object only (`CompletionRequest.known_scan`)."""

    raw: bytes
    items: int
    """Opening brackets of objects and arrays, in strings too; likewise colons and commas."""
    keys: int
    values: int
    words: frozenset[bytes]
    """The members of `WORDS` that occur."""
    escaped_letter: bool
    models: int
    """Occurrences of the string `"model"`, as a key or as a value."""


def has_escaped_letter(raw: bytes) -> bool:
    """Whether `ESCAPED_LETTER` occurs. The search for its beginning is faster than the pattern."""
    return raw.rfind(b"\\u00") >= 0 and ESCAPED_LETTER.search(raw) is not None
