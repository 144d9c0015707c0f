"""Counts the objects, arrays, keys and values in the bytes of a JSON body, before the body is parsed."""

from __future__ import annotations

from gateway.domain.body_scan import BodyScan
from gateway.errors import BodyTooLarge

KEYS_PER_ITEM = 5
VALUES_PER_ITEM = 20
"""Maximum number of values for each allowed object or array. Many values are allowed, because values in flat lists need
little memory: a token array may contain hundreds of thousands of numbers."""
SLICE_BYTES = 2**17
"""Number of bytes that are counted in one step. Other threads can run between two steps."""


def check_extent(body: bytes, most_items: int, slice_bytes: int = SLICE_BYTES, scan: BodyScan | None = None) -> None:
    """Raise BodyTooLarge if the body has too many objects, arrays, keys or values. `most_items`: limit for objects and
    arrays; the limits for keys and values are multiples of it. `scan`: scan of the body, or None."""
    if len(body) <= 2 * most_items:  # an object has at least two bytes, a key five, and a value with its comma two
        return
    whole = _Extent(most_items)
    exceeded = whole.exceeded_by(body) if scan is None else whole.exceeded(scan.items, scan.keys, scan.values)
    if not exceeded:  # the body is within the limit even if strings are counted as JSON
        return
    _count(body, most_items, slice_bytes)


class _Extent:
    """The numbers of objects, arrays, keys and values counted so far."""

    def __init__(self, most_items: int) -> None:
        self._most_items = most_items
        self._items = self._keys = self._values = 0

    def exceeded_by(self, outside: bytes) -> str:
        """Count the objects, arrays, keys and values in `outside`, a piece of the body without the contents of strings.
        Returns the limit that is exceeded, or an empty string."""
        return self.exceeded(outside.count(b"{") + outside.count(b"["), outside.count(b":"), outside.count(b","))

    def exceeded(self, items: int, keys: int, values: int) -> str:
        """Add to the numbers. Returns a description of the limit that is exceeded; empty if no limit is exceeded."""
        self._items += items
        if self._items > self._most_items:
            return f"{self._most_items} objects and arrays"
        self._keys += keys
        if self._keys > (most := self._most_items * KEYS_PER_ITEM):
            return f"{most} keys"
        self._values += values
        return f"{most} values" if self._values > (most := self._most_items * VALUES_PER_ITEM) else ""


def _count(body: bytes, most_items: int, slice_bytes: int) -> None:
    """Count the body slice by slice. The contents of strings are not counted. Raises BodyTooLarge if a limit is
    exceeded."""
    counted, inside, at = _Extent(most_items), False, 0
    while at < len(body):
        end = _whole_escapes(body, at, at + slice_bytes)
        pieces = body[at:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        if too_many := counted.exceeded_by(b'"'.join(pieces[inside::2])):
            raise _too_many(too_many, most_items)
        inside ^= len(pieces) % 2 == 0
        at = end


def _whole_escapes(body: bytes, start: int, end: int) -> int:
    """The end of a slice that begins at `start`: `end`, or `end` + 1 if `end` would split an escape sequence."""
    if end >= len(body):
        return len(body)
    piece = body[start:end]
    return end + (len(piece) - len(piece.rstrip(b"\\"))) % 2


def _too_many(what: str, most_items: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body has more than {what}, which requests.max_items ({most_items}) in the operator's file "
        "allows; send fewer messages, parts, tools or inputs in one request."
    )
