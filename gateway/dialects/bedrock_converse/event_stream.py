"""Writes `application/vnd.amazon.eventstream`, AWS's binary framing of a stream of messages.

https://smithy.io/2.0/aws/amazon-eventstream.html
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import orjson

_TEXT = 7
"""Type of a header's value."""
_FRAMING = 16
"""Bytes of a message besides headers and payload: two lengths and two checksums."""


def event(kind: str, value: Mapping[str, Any]) -> bytes:
    """An event of a stream."""
    return _message(((":event-type", kind), (":message-type", "event")), value)


def exception(kind: str, message: str) -> bytes:
    """An error in a stream."""
    return _message(((":exception-type", kind), (":message-type", "exception")), {"message": message})


def _message(headers: tuple[tuple[str, str], ...], value: Mapping[str, Any]) -> bytes:
    head = b"".join(_header(*pair) for pair in (*headers, (":content-type", "application/json")))
    payload = orjson.dumps(value)
    prelude = struct.pack(">II", _FRAMING + len(head) + len(payload), len(head))
    data = b"%b%b%b%b" % (prelude, struct.pack(">I", crc32(prelude)), head, payload)
    return data + struct.pack(">I", crc32(data))


def _header(name: str, value: str) -> bytes:
    return struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", _TEXT, len(value)) + value.encode()
