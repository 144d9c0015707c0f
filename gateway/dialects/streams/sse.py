"""Framing of server-sent events: extracts whole events from bytes that arrive in arbitrary pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from gateway.dialects.answers.upstream_error import error_in
from gateway.errors import BackendGarbage

MAX_EVENT_BYTES = 8 * 2**20

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
_BOM = b"\xef\xbb\xbf"
_BREAK_BYTES = 3
"""Number of bytes of a blank line that may arrive before the rest of it: a blank line has at most four bytes."""


class Framer:
    """Collects bytes until an event is complete. The bytes are never decoded, so a character that is split between two
    pieces causes no error."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        self._held = 0
        self._head: bytes | None = b""

    @property
    def empty(self) -> bool:
        """Whether the data so far is an event stream and ends with an event."""
        return not self._tail and self._head is None

    def feed(self, data: bytes) -> bytes:
        """Add `data` and return all events that are complete now. Raises BackendGarbage if the data is not an event
        stream."""
        if self._head is not None:
            self._check_beginning(data)
        if self._tail:
            last = b"".join([piece[-_BREAK_BYTES:] for piece in self._tail[-_BREAK_BYTES:]])[-_BREAK_BYTES:]
            if not boundary(last + data):
                self._hold(data)
                return b""
            data = self.rest() + data
        end = boundary(data)
        if end < len(data):
            self._hold(data[end:])
        return data[:end]

    def _check_beginning(self, data: bytes) -> None:
        head = (self._head or b"") + data
        begins = _begins(head)
        if begins is False:
            error = error_in(head)
            words = f": {error.message}" if error else "."
            summary = "The backend did not answer with an event stream"
            failure = BackendGarbage(f"{summary}{words}")
            failure.summary = summary
            raise failure
        self._head = None if begins else _unbroken(head)  # without the line breaks, of which there may be megabytes

    def _hold(self, data: bytes) -> None:
        if data:
            self._tail.append(data)
        self._held += len(data)
        if self._held > MAX_EVENT_BYTES:
            raise BackendGarbage(f"The backend sent an event of more than {MAX_EVENT_BYTES} bytes.")

    def rest(self) -> bytes:
        """Remove and return the bytes that are left: an event without its blank line, or nothing."""
        rest = b"".join(self._tail)
        self._tail, self._held = [], 0
        return rest


def boundary(data: bytes) -> int:
    """The position after the last blank line; 0 if there is none. A final carriage return does not count: it may be
    half of CRLF."""
    if b"\r" not in data:
        return data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
    end = 0
    for match in _BLANK_LINE.finditer(data):
        if match.end() < len(data) or not data.endswith(b"\r"):
            end = match.end()
    return end


def sound(block: bytes) -> bool:
    """Whether every event of `block` appears to be a single JSON object. If not, the events must be parsed one by
    one.
    """
    if block.startswith(b'data: {"') and block.find(b"\n") == len(block) - 2 and block.endswith(b"}\n\n"):
        return True  # the usual case: one event
    ends = block.count(b"\n\n")
    return ends == block.count(b"}\n\n") == block.count(b'data: {"')


def has_any(block: bytes, marks: Iterable[bytes]) -> bool:
    """Whether `block` contains one of `marks`. Implemented with `rfind`, the fastest search on bytes."""
    find = block.rfind
    for mark in marks:  # noqa: SIM110 - any() with a generator takes more time than the searches
        if find(mark) >= 0:
            return True
    return False


def next_boundary(block: bytes, at: int, returns: bool) -> int:
    """The position after the first blank line at or after `at`. If there is none, the length of `block`. `returns`:
    whether `block` contains carriage returns."""
    if not returns:
        end = block.find(b"\n\n", at)
        return len(block) if end < 0 else end + 2
    match = _BLANK_LINE.search(block, at)
    return match.end() if match else len(block)


def events(block: bytes, at: int = 0) -> Iterator[bytes]:
    """Yield each event from position `at` on, including its blank line."""
    returns = b"\r" in block
    while at < len(block):
        end = next_boundary(block, at, returns)
        yield block[at:end]
        at = end


def parts(block: bytes, marks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of `block` in order, divided into pieces, and whether the piece contains one of `marks`. An
    event that contains a mark is a piece. The events between two such events are together one piece.

    If `block` contains carriage returns, each event is a piece.
    """
    if b"\r" in block:
        for event in events(block):
            yield event, has_any(event, marks)
        return
    spans = set[tuple[int, int]]()
    for mark in marks:  # `end`: as in `next_boundary`, without the call
        at = block.rfind(mark)
        while at >= 0:
            start, end = block.rfind(b"\n\n", 0, at), block.find(b"\n\n", at)
            start = start + 2 if start >= 0 else 0
            spans.add((start, end + 2 if end >= 0 else len(block)))
            at = block.rfind(mark, 0, start)
    at = 0
    for start, end in sorted(spans):
        if at < start:
            yield block[at:start], False
        yield block[start:end], True
        at = end
    if at < len(block):
        yield block[at:], False


def objects(block: bytes) -> list[dict[str, Any]] | None:
    """Parse the data of all events of `block` at once. None if some event is not exactly one line of data with an
    object.
    """
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if not block.startswith(b"data: {"):
        return None
    try:
        found: list[Any] = orjson.loads(b"[%b]" % block[6:].replace(b"\n\ndata: ", b","))
    except orjson.JSONDecodeError:
        return None
    if len(found) != block.count(b"\n\n") or set(map(type, found)) - {dict}:
        return None
    return found


def payload(event: bytes) -> bytes:
    """The data of an event. If the event has several data lines, they are joined. Empty for a comment."""
    return fields(event)[1]


def fields(event: bytes) -> tuple[bytes, bytes]:
    """The name and the data of an event. A line `error: …` of some servers counts as an event named `error`."""
    # the usual forms first; the loop below reads them too
    if event.startswith(b"data: ") and b"\n" not in (text := event[6:].strip()) and b"\r" not in event:
        return b"", text
    if event.startswith(b"event: ") and b"\r" not in event:
        named, _, text = event.partition(b"\ndata: ")
        text = text.strip()
        if text and b"\n" not in text and b"\n" not in named:
            return named[7:].strip(), text
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


def lacks_only_its_end(rest: bytes) -> bool:
    """Whether `rest` is a complete event that lacks only its blank line."""
    name, data = fields(rest)
    if data == b"[DONE]" or name == b"error":
        return True
    try:
        return type(orjson.loads(data)) is dict
    except orjson.JSONDecodeError:
        return False


def _begins(head: bytes) -> bool | None:
    """Whether `head` is the beginning of an event stream. None if `head` is too short to decide this."""
    head = _unbroken(head)
    if head.startswith(_BEGINNINGS):
        return True
    return None if any(beginning.startswith(head) for beginning in _BEGINNINGS) or _BOM.startswith(head) else False


def _unbroken(head: bytes) -> bytes:
    """`head` without a byte order mark and line breaks at its beginning."""
    return head.removeprefix(_BOM).lstrip(b"\r\n")
