"""Writes `application/vnd.amazon.eventstream`, AWS's binary framing of a stream of messages.

https://smithy.io/2.0/aws/amazon-eventstream.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from zlib import crc32

import orjson

_TEXT = 7
"""Number of the type of a header whose value is a text."""
_LENGTHS, _CHECKSUM = struct.Struct(">II"), struct.Struct(">I")
_FRAMING = 16
"""Bytes of a message in addition to its headers and its payload: two lengths and two checksums."""


def event(kind: str, value: Mapping[str, Any]) -> bytes:
    """The bytes of an event in a stream. `kind`: the type of the event. `value`: its contents."""
    return events(kind, (orjson.dumps(value),))


def events(kind: str, payloads: Iterable[bytes]) -> bytes:
    """The bytes of several events of one type. `payloads`: their contents as JSON."""
    return _messages(((":event-type", kind), (":message-type", "event")), payloads)


def exception(kind: str, message: str) -> bytes:
    """The bytes of an error in a stream. `kind`: the name of the exception."""
    return _messages(((":exception-type", kind), (":message-type", "exception")), (orjson.dumps({"message": message}),))


def _messages(headers: tuple[tuple[str, str], ...], payloads: Iterable[bytes]) -> bytes:
    head, pieces = _head(headers), list[bytes]()
    for payload in payloads:
        opening, checksum = _opening(head, len(payload))
        pieces += (opening, payload, _CHECKSUM.pack(crc32(payload, checksum)))
    return b"".join(pieces)


@lru_cache(maxsize=256)
def _opening(head: bytes, size: int) -> tuple[bytes, int]:
    """The bytes before a payload of `size` bytes, and their checksum. Many events of a stream have equal sizes."""
    prelude = _LENGTHS.pack(_FRAMING + len(head) + size, len(head))
    opening = b"%b%b%b" % (prelude, _CHECKSUM.pack(crc32(prelude)), head)
    return opening, crc32(opening)


@lru_cache(maxsize=64)
def _head(headers: tuple[tuple[str, str], ...]) -> bytes:
    """The headers of a message. Cached, because the messages of a stream have only few different headers."""
    return b"".join(_header(*pair) for pair in (*headers, (":content-type", "application/json")))


def _header(name: str, value: str) -> bytes:
    return struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", _TEXT, len(value)) + value.encode()
