"""Scans large bodies in blocks of bytes, and remembers the facts found in each block.

A coding agent sends its whole conversation with every request, so all blocks except the last ones are equal to the
blocks of the request before. A known block is found by comparing all of its bytes, so the facts of other bytes are
never used.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple

from gateway.domain.body_scan import LONGEST_WORD, MODEL, WORDS, BodyScan, has_escaped_letter

LEAST_BYTES = 64 * 2**10
"""Minimum bytes of a body that is scanned in advance."""
BLOCK_BYTES = 16 * 2**10
_OVERLAP = LONGEST_WORD - 1
"""Number of bytes of the next block that are scanned together with a block, so that a word across the border is found.
"""
MOST_BYTES = 16 * 2**20


class _Facts(NamedTuple):
    items: int
    keys: int
    values: int
    words: frozenset[bytes]
    escaped_letter: bool
    models: int


class KnownBlocks:
    """The facts of `BodyScan` about the blocks of recent large bodies. Keeps facts for at most `most_bytes` bytes of
    blocks. Methods may be called from several threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes // BLOCK_BYTES
        self._facts: OrderedDict[tuple[str, bytes], _Facts] = OrderedDict()

    def __len__(self) -> int:
        """The number of blocks whose facts are kept."""
        return len(self._facts)

    def scan(self, team: str, raw: bytes) -> BodyScan:
        """The facts of the body `raw` of `team`. Each team has its own blocks, so no facts are shared between teams."""
        items = keys = values = models = 0
        words: frozenset[bytes] = frozenset()
        escaped = False
        for at in range(0, len(raw), BLOCK_BYTES):
            block = self._of(team, raw[at : at + BLOCK_BYTES + _OVERLAP])
            items, keys, values = items + block.items, keys + block.keys, values + block.values
            models += block.models
            if block.words:
                words |= block.words
            escaped = escaped or block.escaped_letter
        return BodyScan(raw, items, keys, values, words, escaped, models)

    def _of(self, team: str, block: bytes) -> _Facts:
        known, key = self._facts, (team, block)
        found = known.get(key)
        if found is not None:
            with suppress(KeyError):  # another thread has just evicted the block
                known.move_to_end(key)
            return found
        known[key] = found = _facts(block)
        if len(known) > self._most:
            with suppress(KeyError):  # another thread has just evicted the last block
                known.popitem(last=False)
        return found


def _facts(block: bytes) -> _Facts:
    end = BLOCK_BYTES
    return _Facts(
        block.count(b"{", 0, end) + block.count(b"[", 0, end),
        block.count(b":", 0, end),
        block.count(b",", 0, end),
        frozenset(word for word in WORDS if block.rfind(word) >= 0),
        has_escaped_letter(block),
        block.count(MODEL, 0, end + len(MODEL) - 1),  # models that begin before `end`
    )
