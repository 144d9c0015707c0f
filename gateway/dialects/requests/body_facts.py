"""Facts about the bytes of a large body that are remembered with the body: its scan, and the memory that it needs."""

from __future__ import annotations

from sys import getsizeof
from typing import Any, NamedTuple

from gateway.domain.body_scan import MODEL, WORDS, BodyScan, has_escaped_letter
from gateway.domain.request import Turn

_PER_BYTE = (3, 6, 10)
"""Maximum bytes of memory for each byte of JSON: the JSON, its strings as Python objects, and copies of the strings in
turns. For JSON whose strings take 1 byte for each character, 2 bytes, and 4 bytes. One character determines how many
bytes each character of a string takes."""
_PER_OBJECT, _PER_VALUE, _PER_KEY = 130, 84, 75
"""Bytes of memory for each object or array, for each further value, and for each key: its string, and a slot of a dict
that has just grown."""
_MOST_WALKED = 5000
"""Maximum number of brackets and commas of an item whose objects are measured one by one, which takes up to a
millisecond."""
_WIDE = (*(bytes([first]) for first in range(0xF0, 0xF5)), b"\\ud", b"\\uD")
"""The first bytes of characters above U+FFFF, and the beginnings of their JSON escapes."""


class Facts(NamedTuple):
    """The facts of `BodyScan` for a part of a body. The part begins and ends between two values."""

    items: int = 0
    keys: int = 0
    values: int = 0
    words: frozenset[bytes] = frozenset()
    escaped_letter: bool = False
    models: int = 0
    memory: int = 0
    """Maximum bytes of memory of the part and of its Python objects; 0 if it is not computed."""

    @classmethod
    def of(cls, part: bytes, words: frozenset[bytes] = WORDS) -> Facts:
        """Find the facts about `part`. `words`: the words that may occur in `part`."""
        items, values = part.count(b"{") + part.count(b"["), part.count(b",")
        return cls(
            items,
            part.count(b":"),
            values,
            frozenset([word for word in words if part.rfind(word) >= 0]),
            has_escaped_letter(part),
            part.count(MODEL),
        )

    def plus(self, other: Facts) -> Facts:
        return Facts(
            self.items + other.items,
            self.keys + other.keys,
            self.values + other.values,
            self.words | other.words if other.words else self.words,
            self.escaped_letter or other.escaped_letter,
            self.models + other.models,
            self.memory + other.memory,
        )

    def scan(self, raw: bytes) -> BodyScan:
        """Return the scan of the whole body `raw`, whose facts this object has."""
        return BodyScan(raw, self.items, self.keys, self.values, self.words, self.escaped_letter, self.models)


def scanned(raw: bytes) -> BodyScan:
    """Scan a body of which nothing is known yet."""
    return Facts.of(raw).scan(raw)


def memory_of_item(part: bytes, item: Any, turn: Turn | None) -> int:
    """Estimated bytes of memory of an item, of its JSON `part`, and of the texts of its turn. For an item with many
    values, the estimate is too high rather than too low.
    """
    if part.count(b"{") + part.count(b"[") + part.count(b",") > _MOST_WALKED:
        return memory_of(part, part.count(b"{") + part.count(b"["), part.count(b","), part.count(b":"))
    size, values = 0, [item]
    for value in values:
        size += getsizeof(value)
        if type(value) is dict:
            values += value
            values += value.values()
        elif type(value) is list:
            values += value
    if turn is not None:
        if not any(value is turn.text for value in values):
            size += getsizeof(turn.text)
        if turn.calls or turn.asides:  # `written_calls` repeats most of the item
            size *= 2
    return len(part) + size


def memory_of(part: bytes, items: int, values: int, keys: int) -> int:
    """Maximum bytes of memory of `part` and of its Python objects. `items`, `values` and `keys` as in `BodyScan`."""
    width = 0
    if not part.isascii() or part.rfind(b"\\u") >= 0:
        width = 2 if any(part.rfind(first) >= 0 for first in _WIDE) else 1
    return len(part) * _PER_BYTE[width] + items * _PER_OBJECT + values * _PER_VALUE + keys * _PER_KEY
