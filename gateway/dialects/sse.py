"""Framing of server-sent events: whole events out of bytes that arrive cut anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_EVENT_BYTES = 8 * 2**20

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """One event outgrew MAX_EVENT_BYTES."""


class Framer:
    """Holds back the event that is not whole yet. Bytes are never changed, so a split character does not matter."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._held = 0

    @property
    def empty(self) -> bool:
        return not self._tail

    def feed(self, data: bytes) -> bytes:
        """Everything up to the last blank line. Raises EventTooLarge."""
        if self._tail and b"\n" not in data and b"\r" not in data:
            self._hold(data)
            return b""
        if self._tail:
            data = self.rest() + data
        end = boundary(data)
        if end < len(data):
            self._hold(data[end:])
        return data[:end]

    def _hold(self, data: bytes) -> None:
        self._tail.append(data)
        self._held += len(data)
        if self._held > self._limit:
            raise EventTooLarge(f"one event is larger than {self._limit} bytes")

    def rest(self) -> bytes:
        """Take what is held back: a last event without its blank line, or nothing."""
        rest = b"".join(self._tail)
        self._tail, self._held = [], 0
        return rest


def boundary(data: bytes) -> int:
    """Past the last blank line; 0 when there is none. A carriage return at the very end may yet become CRLF."""
    if b"\r" not in data:
        return data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
    end = 0
    for match in _BLANK_LINE.finditer(data):
        if match.end() < len(data) or not data.endswith(b"\r"):
            end = match.end()
    return end


def events(block: bytes) -> Iterator[bytes]:
    """Single events with their blank lines; joined they are `block` again."""
    if b"\r" not in block:
        *whole, last = block.split(b"\n\n")
        for event in whole:
            yield event + b"\n\n"
    else:
        at = 0
        for match in _BLANK_LINE.finditer(block):
            yield block[at : match.end()]
            at = match.end()
        last = block[at:]
    if last:
        yield last


def payload(event: bytes) -> bytes:
    """The event's data, lines joined; empty for a comment."""
    if event.startswith(b"data: ") and event.find(b"\n", 0, -2) < 0 and b"\r" not in event:
        return event[6:].strip()
    return fields(event)[1]


def fields(event: bytes) -> tuple[bytes, bytes]:
    """Name and data of an event. A line `error: …`, which some servers send instead, is an event named error."""
    name, data = b"", []
    for line in event.splitlines():
        field, _, value = line.partition(b":")
        if field in (b"data", _BOM + b"data"):
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.strip()
        elif field == b"error":
            name = b"error"
            data.append(value)
    return name, b"\n".join(data).strip()


def begins(head: bytes) -> bool | None:
    """Is this how an event stream begins? None while there is too little to tell."""
    head = head.removeprefix(_BOM).lstrip(b"\r\n")
    if head.startswith(_BEGINNINGS):
        return True
    return None if any(beginning.startswith(head) for beginning in _BEGINNINGS) or _BOM.startswith(head) else False
