"""Counts objects, arrays, keys and values of a JSON body in its bytes, before it is parsed."""

from __future__ import annotations

from gateway.errors import BodyTooLarge

KEYS_PER_ITEM = 5
VALUES_PER_ITEM = 20
"""Numbers and strings of flat lists are many and cheap: an array of tokens may have hundreds of thousands."""
_SLICE = 2**17
"""Bytes that are looked at in one call: a thread that counts lets the event loop run in between."""


def check_extent(body: bytes, most_items: int) -> None:
    """Raises BodyTooLarge for a body with more objects and arrays than `most_items`, or with more keys or values than
    go with so many.

    What is no JSON may be counted wrongly; as far as it is valid, the count is right.
    """
    if len(body) <= 2 * most_items:  # an object takes two bytes, a key five, a value and its comma two
        return
    whole = _Extent(most_items)
    if not whole.exceeded_by(body):  # so it is even if they all stand outside of strings
        return
    _count(body, most_items)


class _Extent:
    """What has been counted so far."""

    def __init__(self, most_items: int) -> None:
        self._most_items = most_items
        self._items = self._keys = self._values = 0

    def exceeded_by(self, outside: bytes) -> str:
        """Count a piece in which nothing stands in a string. What there is too much of; empty when nothing is."""
        self._items += outside.count(b"{") + outside.count(b"[")
        if self._items > self._most_items:
            return f"{self._most_items} objects and arrays"
        self._keys += outside.count(b":")
        if self._keys > (most := self._most_items * KEYS_PER_ITEM):
            return f"{most} keys"
        self._values += outside.count(b",")
        return f"{most} values" if self._values > (most := self._most_items * VALUES_PER_ITEM) else ""


def _count(body: bytes, most_items: int) -> None:
    """Slice by slice, without what stands in strings."""
    counted, inside, at = _Extent(most_items), False, 0
    while at < len(body):
        end = _whole_escapes(body, at, at + _SLICE)
        pieces = body[at:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        if too_many := counted.exceeded_by(b'"'.join(pieces[inside::2])):
            raise _too_many(too_many, most_items)
        inside ^= len(pieces) % 2 == 0
        at = end


def _whole_escapes(body: bytes, start: int, end: int) -> int:
    """`end`, or a byte further where it would cut an escape in two."""
    if end >= len(body):
        return len(body)
    piece = body[start:end]
    return end + (len(piece) - len(piece.rstrip(b"\\"))) % 2


def _too_many(what: str, most_items: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body has more than {what}, which requests.max_items ({most_items}) in the operator's file "
        "allows; send fewer messages, parts, tools or inputs in one request."
    )
