"""Decodes `application/vnd.amazon.eventstream`, AWS's binary framing of a stream of messages.

https://smithy.io/2.0/aws/amazon-eventstream.html
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from gateway.errors import BackendGarbage

CONTENT_TYPE = b"application/vnd.amazon.eventstream"
_PRELUDE = struct.Struct(">III")
"""Three integers: the message's length, the length of its headers, and a checksum of both."""
_CHECKSUM = struct.Struct(">I")
_MOST_BYTES = 24 * 2**20
_USUAL_HEAD = 256
"""Maximum bytes of a message's headers. If the headers are longer, their parsed form is not cached."""
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Type number of a header's value → length of the value in bytes. Contains the types with a fixed length."""
_SIZED = frozenset({6, 7})
"""Type numbers of the values that begin with their length: bytes and strings."""


class Messages(NamedTuple):
    """Messages that follow one another in the stream and have equal headers."""

    headers: Mapping[str, bytes]
    """Header name → header value. Values other than bytes and strings stay encoded."""
    payloads: list[bytes]

    def header(self, name: str) -> str:
        """The text of a header; empty if it is missing."""
        return self.headers.get(name, b"").decode("utf-8", "replace")


class Decoder:
    """Decodes bytes as they arrive, and returns messages when they are complete."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def inside(self) -> bool:
        """Whether a message has begun and is not yet complete."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[Messages]:
        """The messages that are complete after `data` was added. Raises BackendGarbage if a length or a checksum is
        wrong."""
        data = self._rest + data if self._rest else data
        found, at, size = list[Messages](), 0, len(data)
        raw: bytes | None = None
        payloads: list[bytes] = []
        while (begin := at + _PRELUDE.size) <= size:
            length, head = _lengths(data[at:begin])
            if size < at + length:
                break
            end, body = at + length - _CHECKSUM.size, begin + head
            if _CHECKSUM.unpack_from(data, end) != (crc32(data[at:end]),):
                raise BackendGarbage("The backend sent an event whose checksum is wrong.")
            if (headers := data[begin:body]) != raw:
                raw, payloads = headers, []
                found.append(Messages(_known(headers), payloads))
            payloads.append(data[body:end])
            at += length
        self._rest = data[at:]
        return found


@lru_cache(maxsize=256)
def _lengths(prelude: bytes) -> tuple[int, int]:
    """The lengths of a message and of its headers. Cached, because many events of a stream have equal lengths."""
    size, head, checksum = _PRELUDE.unpack(prelude)
    if crc32(prelude[:8]) != checksum or not _PRELUDE.size + head + _CHECKSUM.size <= size <= _MOST_BYTES:
        raise BackendGarbage("The backend sent something that is no event stream.")
    return size, head


def _known(raw: bytes) -> dict[str, bytes]:
    """The parsed headers. Raises BackendGarbage if they cannot be read."""
    try:
        return _cached(raw) if len(raw) <= _USUAL_HEAD else _headers(raw)
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise BackendGarbage("The backend sent an event whose headers cannot be read.") from error


@lru_cache(maxsize=64)
def _cached(raw: bytes) -> dict[str, bytes]:
    """The parsed headers. Cached, because all events of one type have equal headers."""
    return _headers(raw)


def _headers(raw: bytes) -> dict[str, bytes]:
    found, at = {}, 0
    while at < len(raw):
        end = at + 1 + raw[at]
        name, kind, at = raw[at + 1 : end].decode(), raw[end], end + 1
        if kind in _SIZED:
            size, at = int.from_bytes(raw[at : at + 2], "big"), at + 2
        else:
            size = _FIXED[kind]
        if at + size > len(raw):
            raise IndexError(name)
        found[name], at = raw[at : at + size], at + size
    return found
