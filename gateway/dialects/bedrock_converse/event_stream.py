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
    """The bytes of an event in a stream. `kind`: the type of the event, `value`: its contents."""
    return events(kind, [orjson.dumps(value)])


def events(kind: str, payloads: Iterable[bytes]) -> bytes:
    """The bytes of several events of one type. `payloads`: their contents as JSON."""
    head = _head(((":event-type", kind), (":message-type", "event")))
    return b"".join([_message(head, payload) for payload in payloads])


def exception(kind: str, message: str) -> bytes:
    """The bytes of an error in a stream. `kind`: the name of the exception."""
    head = _head(((":exception-type", kind), (":message-type", "exception")))
    return _message(head, orjson.dumps({"message": message}))


def _message(head: bytes, payload: bytes) -> bytes:
    """A message. `head`: its headers."""
    prelude = _LENGTHS.pack(_FRAMING + len(head) + len(payload), len(head))
    data = b"%b%b%b%b" % (prelude, _CHECKSUM.pack(crc32(prelude)), head, payload)
    return data + _CHECKSUM.pack(crc32(data))


@lru_cache(maxsize=64)
def _head(headers: tuple[tuple[str, str], ...]) -> bytes:
    """The headers of a message. There are few kinds of messages, and a stream has many of each."""
    return b"".join(_header(*pair) for pair in (*headers, (":content-type", "application/json")))


def _header(name: str, value: str) -> bytes:
    return struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", _TEXT, len(value)) + value.encode()
