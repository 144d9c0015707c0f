"""Facts about the bytes of a large body that are remembered with the body: its scan, and the memory that it needs."""

from __future__ import annotations

from itertools import compress, repeat
from operator import is_
from sys import getsizeof
from typing import Any, NamedTuple

from gateway.domain.body_scan import MODEL, WORDS, BodyScan, has_escaped_letter
from gateway.domain.request import Turn

_PER_BYTE = (3, 6, 10)
"""Maximum bytes of memory for each byte of JSON. Includes the JSON, its strings as Python objects, and copies of the
strings in turns. The three numbers are for strings that Python stores with 1, 2 or 4 bytes for each character. The
widest character of a string determines how many bytes each of its characters takes."""
_PER_OBJECT, _PER_VALUE, _PER_KEY = 130, 84, 75
"""Bytes of memory for each object or array, for each further value, and for each key: its string, and a slot of a dict
that has just grown."""
_MOST_WALKED = 5000
"""The objects of an item are measured one by one if the item has at most this number of brackets and commas. This
measuring takes up to a millisecond."""
_HOLDERS = frozenset([dict, list])
_WIDE = (*(bytes([first]) for first in range(0xF0, 0xF5)), b"\\ud", b"\\uD")
"""The first bytes of characters above U+FFFF, and the beginnings of their JSON escapes."""


_UNMARKED = bytes(set(range(256)) - set(b"{[:,"))
_UNDERSCORED = frozenset([word for word in WORDS if b"_" in word])
_AROUND = max(map(len, _UNDERSCORED))
"""Bytes before and after an underscore that a word with this underscore may take."""
_MOST_UNDERSCORES = 24
"""Maximum number of underscores around which words are searched for; beyond, a search of all bytes is faster."""


class Facts(NamedTuple):
    """Facts about one part of a body. A `BodyScan` is made from the facts about all parts. A part contains only whole
    values, such as the items of a conversation."""

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
        marks = part.translate(None, _UNMARKED)  # one pass; each `count` of `part` would take about as long
        keys, values = marks.count(b":"), marks.count(b",")
        found = [word for word in words - _UNDERSCORED if part.rfind(word) >= 0]  # `in` takes twice as long
        if near := _near_underscores(part):
            found += [word for word in words & _UNDERSCORED if word in near]
        models, at = 0, len(part)
        while (at := part.rfind(MODEL, 0, at)) >= 0:  # `count` too
            models += 1
        return cls(len(marks) - keys - values, keys, values, frozenset(found), has_escaped_letter(part), models)

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


def _near_underscores(part: bytes) -> bytes:
    """The bytes of `part` around its underscores. They contain every word with an underscore that occurs in `part`."""
    between = part.split(b"_", _MOST_UNDERSCORES + 1)
    if len(between) == 1:
        return b""
    if len(between) > _MOST_UNDERSCORES + 1:
        return part
    return b"_".join(
        [b"%b,%b" % (each[:_AROUND], each[-_AROUND:]) if len(each) > 2 * _AROUND else each for each in between]
    )


def memory_of_item(part: bytes, item: Any, turn: Turn | None) -> int:
    """Estimated bytes of memory of an item, of its JSON `part`, and of the texts of its turn. For an item with many
    values, the estimate is too high rather than too low.
    """
    if part.count(b"{") + part.count(b"[") + part.count(b",") > _MOST_WALKED:
        return memory_of(part, part.count(b"{") + part.count(b"["), part.count(b","), part.count(b":"))
    text = None if turn is None else turn.text
    size, copied = 0, True
    holders: list[Any] = [[item]]
    for holder in holders:
        values = [*holder, *holder.values()] if type(holder) is dict else holder
        size += sum(map(getsizeof, values))
        copied = copied and not any(map(is_, values, repeat(text)))  # else the turn's text is one of the values
        holders += compress(values, map(_HOLDERS.__contains__, map(type, values)))
    if turn is not None:
        if copied:
            size += getsizeof(text)
        if turn.calls or turn.asides:  # `Turn.whole` repeats most of the item
            size *= 2
    return len(part) + size


def memory_of(part: bytes, items: int, values: int, keys: int) -> int:
    """Maximum bytes of memory of `part` and of its Python objects. `items`, `values` and `keys` as in `BodyScan`."""
    width = 0
    if not part.isascii() or (b"\\" in part and part.rfind(b"\\u") >= 0):
        width = 2 if any(part.rfind(first) >= 0 for first in _WIDE) else 1
    return len(part) * _PER_BYTE[width] + items * _PER_OBJECT + values * _PER_VALUE + keys * _PER_KEY
