"""The hash chain of the entries that one writer stores.

Entries are rows of the ledger and roll-ups, numbered from 1 without gaps. The hash of an entry is the SHA-256 of the
previous hash and the entry's own canonical bytes, as in Haber and Stornetta, "How to time-stamp a digital document"
(1991).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.ledger.rows import FIELDS, LEAST, Row, Values

_DEFAULTS = tuple(Row._field_defaults.get(name) for name in FIELDS)
_FLOATS = tuple(FIELDS.index(name) for name in ("at", "first_byte_ms", "duration_ms", "difficulty"))


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of a chain. If the chain has no entries, `seq` is 0."""

    chain: str
    seq: int
    hash: bytes


def genesis(chain: str, begun_at: float, outside: int) -> bytes:
    """The hash before the first entry of a chain. `outside`: the number of rows that are in no chain; the hash includes
    this number."""
    return hashlib.sha256(orjson.dumps([chain, float(begun_at), outside])).digest()


def canonical(values: Values) -> bytes:
    """The bytes of a row from which its hash is computed: the values as JSON, without defaults at the end. So a new
    column does not change the hashes of earlier rows."""
    length = len(values)
    while length > LEAST and values[length - 1] == _DEFAULTS[length - 1]:
        length -= 1
    for place in _FLOATS:
        if place < length and type(values[place]) is int:  # JSON may write 1.0 as 1, but databases return a float
            return orjson.dumps(_with_floats(values)[:length])
    return orjson.dumps(values[:length])


def _with_floats(values: Values) -> Values:
    return tuple(float(v) if n in _FLOATS and v is not None else v for n, v in enumerate(values))


def following(before: bytes, entry: bytes) -> bytes:
    """The hash of an entry. `entry`: the entry's canonical bytes. `before`: the previous entry's hash."""
    return hashlib.sha256(before + entry).digest()


def linked(head: Head, rows: Sequence[Values]) -> tuple[list[Values], Head]:
    """Append to each of `rows` its number and hash in the chain. Returns the rows, and the chain's new head (newest
    entry)."""
    seq, last, chained = head.seq, head.hash, []
    for row in rows:
        seq += 1
        last = following(last, canonical(row))
        chained.append((*row, seq, last))
    return chained, Head(head.chain, seq, last)


@dataclass(frozen=True, slots=True)
class Rollup:
    """The entry that a chain gets when rows are replaced by sums and deleted. Its numbers and hashes describe the
    deleted rows; they are None if these rows belonged to no chain."""

    id: str
    at: float
    of_chain: str
    first_seq: int | None
    last_seq: int | None
    before_hash: bytes | None
    after_hash: bytes | None
    rows: int
    sums: int
    sums_hash: bytes

    def canonical(self) -> bytes:
        parts: list[Any] = [getattr(self, name) for name in self.__slots__]
        return orjson.dumps([part.hex() if isinstance(part, bytes) else part for part in parts])


_LATER = (("", ""), ("", ""), ("", None, 0))
"""Defaults of columns that were added to sums in later versions, latest version first. A hash leaves out the columns of
a version if all of them have their defaults. So older hashes stay valid."""


def sums_hash(sums: Sequence[Sequence[Any]]) -> bytes:
    """The hash of all sums of one roll-up. `sums`: the roll-up's rows in the table `ledger_sums`, in order."""
    whole = hashlib.sha256()
    for values in sums:
        values_left = tuple(values)
        for defaults in _LATER:
            if values_left[-len(defaults) :] != defaults:
                break
            values_left = values_left[: -len(defaults)]
        whole.update(orjson.dumps(values_left, option=orjson.OPT_APPEND_NEWLINE))
    return whole.digest()
