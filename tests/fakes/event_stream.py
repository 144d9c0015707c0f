"""Writes AWS's event stream, for servers that speak it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import orjson


def frame(headers: Mapping[str, bool | int | str | bytes], payload: bytes) -> bytes:
    """One message."""
    head = b"".join(_header(name.encode(), value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    data = prelude + struct.pack(">I", crc32(prelude)) + head + payload
    return data + struct.pack(">I", crc32(data))


def event(kind: str, value: Mapping[str, Any]) -> bytes:
    """An event as Bedrock sends it."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, orjson.dumps(value))


def exception(kind: str, message: str) -> bytes:
    """An exception in the middle of a stream."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, orjson.dumps({"message": message}))


def _header(name: bytes, value: bool | int | str | bytes) -> bytes:
    head = bytes([len(name)]) + name
    if isinstance(value, bool):
        return head + (b"\0" if value else b"\1")
    if isinstance(value, int):
        return head + b"\4" + struct.pack(">i", value)
    data = value.encode() if isinstance(value, str) else value
    return head + (b"\7" if isinstance(value, str) else b"\6") + struct.pack(">H", len(data)) + data
