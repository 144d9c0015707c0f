"""Scans the bytes of a request once for several packages: how often JSON punctuation occurs, and which of certain words
occur."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNSIGNED = "thriftgate-unsigned"
"""A signature that marks thinking from a backend that does not sign its thinking. Anthropic would reject a request with
this signature, so such blocks are removed before a request is sent to Anthropic."""
WORDS = frozenset(
    {
        *(b"file_id", b'"container', b"server_url", b'"mcp"', b"connector_id", b"vector_store", b"skill_id"),
        *(b"collection_ids", b"image_generation_call", b"cache_control", b"prompt_cache_breakpoint"),
        *(b'"cache_control"', b'"thinking_blocks"', b'"extra_content"', UNSIGNED.encode()),
    }
)
"""The words that a scan looks for. No word contains a comma, so that none begins in one item and ends in the next."""
MODEL = b'"model"'
ESCAPED_LETTER = re.compile(rb"\\u00(?:5[fF]|[46][0-9a-fA-F]|[57][0-9aA])")
"""Matches a JSON escape for a letter or `_`. No client needs such an escape, but any field name could be written with
it."""


@dataclass(frozen=True, slots=True)
class BodyScan:
    """The result of the scan of one body. It is valid only for the `bytes` object that was scanned (see
    `CompletionRequest.known_scan`)."""

    raw: bytes
    items: int
    """Number of opening brackets of objects and arrays, including those in strings. In the same way, `keys` counts
    colons and `values` counts commas."""
    keys: int
    values: int
    words: frozenset[bytes]
    """The members of `WORDS` that occur in the body."""
    escaped_letter: bool
    models: int
    """Occurrences of the string `"model"`, as a key or as a value."""


def has_escaped_letter(raw: bytes) -> bool:
    """Return whether `ESCAPED_LETTER` matches anywhere in `raw`. The beginning of the pattern is searched first,
    because this is faster."""
    return b"\\" in raw and raw.rfind(b"\\u00") >= 0 and ESCAPED_LETTER.search(raw) is not None
