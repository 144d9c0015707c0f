"""Replaces single values in JSON bytes and leaves all other bytes unchanged.

The functions do not validate the bytes, because orjson has parsed the bytes before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType

import orjson

from gateway.domain.body_scan import MODEL, BodyScan

Span = tuple[int, int]
"""Position of the first byte of a value, and position after its last byte."""

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRUCTURE = re.compile(rb'["{}\[\]]')
_SCALAR = re.compile(rb"[^ \t\n\r,\]}]+")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_QUOTE, _BACKSLASH, _COMMA = b'"'[0], b"\\"[0], b","[0]
_OPENING = b"{["
_BLANKS = b" \t\n\r"


def string_end(raw: bytes, start: int) -> int:
    """The position after the closing quote of the string whose opening quote is at `start`."""
    quote = raw.index(b'"', start + 1)
    if raw[quote - 1] == _BACKSLASH:
        return _end(_STRING, raw, start)
    return quote + 1


def value_end(raw: bytes, start: int) -> int:
    """The position after the value that begins at `start`."""
    first = raw[start]
    if first == _QUOTE:
        return string_end(raw, start)
    if first not in _OPENING:
        return _end(_SCALAR, raw, start)
    depth, at = 1, start + 1
    while depth:
        found = _STRUCTURE.search(raw, at)
        if found is None:
            raise ValueError("not the JSON that was parsed")
        at = found.start()
        if raw[at] == _QUOTE:
            at = string_end(raw, at)
            continue
        depth += 1 if raw[at] in _OPENING else -1
        at += 1
    return at


def _end(pattern: re.Pattern[bytes], raw: bytes, at: int) -> int:
    match = pattern.match(raw, at)
    if match is None:
        raise ValueError("not the JSON that was parsed")
    return match.end()


def skip_blanks(raw: bytes, at: int) -> int:
    """The position of the first byte at or after `at` that is not white space."""
    return _end(_SPACE, raw, at) if raw[at] in _BLANKS else at


def members(raw: bytes, start: int = 0) -> Iterator[tuple[str, Span]]:
    """Yield each key of the object at `start` with the span of its value, in order. A duplicate key is yielded each
    time it occurs."""
    at = skip_blanks(raw, skip_blanks(raw, start) + 1)
    while raw[at] == _QUOTE:
        key_end = string_end(raw, at)
        value = skip_blanks(raw, raw.index(b":", key_end) + 1)
        end = value_end(raw, value)
        yield orjson.loads(raw[at:key_end]), (value, end)
        at = skip_blanks(raw, end)
        if raw[at] == _COMMA:
            at = skip_blanks(raw, at + 1)


def elements(raw: bytes, start: int) -> Iterator[Span]:
    """Yield the span of each element of the array at `start`."""
    at = skip_blanks(raw, start + 1)
    while raw[at] not in b"]":
        end = value_end(raw, at)
        yield at, end
        at = skip_blanks(raw, end)
        if raw[at] == _COMMA:
            at = skip_blanks(raw, at + 1)


def find(raw: bytes, key: str) -> list[Span]:
    """The span of the value of the top-level key `key`. If the key is duplicated, the spans of all its values. `key`
    must be in the parsed object, and may contain only lower-case letters and `_`."""
    quoted, escapes = _spellings(key)
    at = raw.rfind(quoted)  # `rfind` is several times as fast as `find` if the text has more than one character
    if at >= 0 and raw.find(quoted, 0, at + len(quoted) - 1) < 0 and not _escaped(raw, escapes):
        value = skip_blanks(raw, raw.index(b":", at + len(quoted)) + 1)
        return [(value, value_end(raw, value))]
    return [span for name, span in members(raw) if name == key]


@cache
def _spellings(key: str) -> tuple[bytes, tuple[bytes, ...]]:
    r"""The quoted key, and beginnings of escape sequences for its letters. For example, `\u006` begins the escape
    of the letter m.
    """
    return b'"%s"' % key.encode(), tuple({(b"\\u%04x" % ord(letter))[:5] for letter in key})


def _escaped(raw: bytes, escapes: tuple[bytes, ...]) -> bool:
    """Whether `raw` contains one of `escapes`, the beginnings of escape sequences. If so, a key in `raw` may be spelled
    with escape sequences."""
    first = raw.find(b"\\")
    if first >= 0:
        for escape in escapes:
            if raw.rfind(escape, first) >= 0:
                return True
    return False


def replace(raw: bytes, changes: Iterable[tuple[Span, bytes]]) -> bytes:
    """`raw` with each span replaced by its new value. The spans must not overlap."""
    pieces: list[bytes | memoryview] = []
    view, at = memoryview(raw), 0  # a slice of a view copies nothing, so a large body is copied once
    for (start, end), value in sorted(changes):
        pieces += (view[at:start], value)
        at = end
    pieces.append(view[at:])
    return b"".join(pieces)


_NONE: Mapping[str, Span] = MappingProxyType({})


def splice(
    raw: bytes,
    body: Mapping[str, object],
    changes: Mapping[str, bytes],
    scan: BodyScan | None = None,
    known: Mapping[str, Span] = _NONE,
) -> bytes:
    """Set top-level keys of `raw` to the JSON in `changes`. All values of a duplicate key are replaced, so that all
    parsers agree.

    `body`: the parsed `raw`, not empty. `scan`: the scan of `raw`, or None. `known`: keys that occur once, with the
    spans of their values.
    """
    if scan is not None and scan.models == 1 and not scan.escaped_letter and changes.keys() == {"model"} <= body.keys():
        at = skip_blanks(raw, raw.index(b":", raw.index(MODEL) + len(MODEL)) + 1)
        return replace(raw, (((at, value_end(raw, at)), changes["model"]),))
    # Most clients write JSON as orjson does. Then writing `body` again changes no other byte and takes a third of the
    # time of a search. Non-ASCII text is excluded, because encoding it is slow.
    if known.keys().isdisjoint(changes) and raw.isascii() and orjson.dumps(body) == raw:
        changed: dict[str, object] = {**body}
        added: dict[str, object] = {}
        for key, value in changes.items():
            (changed if key in body else added)[key] = orjson.Fragment(value)
        return orjson.dumps({**added, **changed} if added else changed)
    return _searched(raw, body, changes, known)


def _searched(raw: bytes, body: Mapping[str, object], changes: Mapping[str, bytes], known: Mapping[str, Span]) -> bytes:
    spans: list[tuple[Span, bytes]] = []
    for key, value in changes.items():
        if key in body:
            found = [known[key]] if key in known else find(raw, key)
            if len(changes) == len(found) == 1:
                start, end = found[0]
                return b"%b%b%b" % (raw[:start], value, raw[end:])
            spans += [(span, value) for span in found]
    added = [b'"%s":%s,' % (key.encode(), value) for key, value in changes.items() if key not in body]
    if added:
        first = raw.index(b"{") + 1
        spans.append(((first, first), b"".join(added)))
    return replace(raw, spans) if spans else raw


def without(raw: bytes, keys: Collection[str]) -> bytes:
    """`raw` without its top-level `keys`. The other values keep their bytes."""
    kept = [b"%b:%b" % (orjson.dumps(name), raw[start:end]) for name, (start, end) in members(raw) if name not in keys]
    return b"{%b}" % b",".join(kept)
