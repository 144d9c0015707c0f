"""Splits the body of a message batch into lines while the body arrives. Each line has one request."""

from __future__ import annotations

import re
from collections.abc import Callable

import orjson

from gateway.errors import BadRequest, BodyTooLarge

LONGEST_REST = 2**20
"""Maximum bytes of the body outside of the requests, including separators."""
_STRUCTURE = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_KEY = re.compile(rb'"requests"[ \t\r\n]*:[ \t\r\n]*\Z')
_QUOTE, _OBJECT, _ARRAY = b'"{['
_BREAKS = bytes.maketrans(b"\r\n", b"  ")
_LIST, _REQUEST = 2, 3
"""Nesting levels in the body: of the list `requests`, and of each request in this list."""


class Requests:
    """Splits a body that arrives in pieces. Each object in the body's list `requests` becomes one line, which is passed
    to `sink`. Mistakes inside the objects are not noticed here."""

    def __init__(self, sink: Callable[[bytes], object], longest: int, most: int) -> None:
        """`longest`: maximum bytes of one request. `most`: maximum number of requests."""
        self._sink, self._longest, self._most = sink, longest, most
        self._rest = bytearray()
        self._request: bytearray | None = None
        self._depth = self._count = 0
        self._listed = self._quoted = False
        self._held = b""
        """A backslash at the end of the last piece. The character that it escapes has not arrived yet."""

    def feed(self, data: bytes) -> None:
        """Process the next piece of the body. Raises BadRequest, BodyTooLarge and the errors of `sink`."""
        data, self._held = self._held + data, b""
        at = kept = 0
        while at < len(data):
            if self._quoted:
                at = self._string(data, at)
                continue
            found = _STRUCTURE.search(data, at)
            if found is None:
                break
            kept = self._step(data, kept, found.start())
            at = found.end()
        self._keep(data[kept : len(data) - len(self._held)])

    def close(self) -> None:
        """End the body. Raises BadRequest if the body was not an object whose member `requests` is a list with at
        least one object.
        """
        try:
            rest = orjson.loads(self._rest)
        except orjson.JSONDecodeError as error:
            raise BadRequest("The body is not valid JSON.") from error
        found = rest.get("requests") if isinstance(rest, dict) else None
        if not isinstance(found, list) or not found:
            raise BadRequest("requests: must be a list of at least one request.", param="requests")
        for number, stand_in in enumerate(found):
            if stand_in is not None or len(found) != self._count:
                raise BadRequest(f"requests.{number}: must be an object.", param=f"requests.{number}")

    def _string(self, data: bytes, at: int) -> int:
        """Find the end of the string that is open at position `at`. Returns the position after it, or the length of
        `data` if the string does not end in `data`."""
        found = _IN_STRING.match(data, at)
        assert found is not None  # the match may be empty
        end = found.end()
        if end < len(data) and data[end] == _QUOTE:
            self._quoted = False
        elif end < len(data):
            self._held = data[end:]
            return len(data)
        return end + 1

    def _step(self, data: bytes, kept: int, at: int) -> int:
        """Process the quote or bracket at position `at`. `kept`: the position up to which `data` was already
        stored. Returns the new value of `kept`.
        """
        sign = data[at]
        if sign == _QUOTE:
            self._quoted = True
        elif sign in (_OBJECT, _ARRAY):
            self._depth += 1
            if sign == _ARRAY and self._depth == _LIST:
                self._keep(data[kept:at])
                self._listed = _KEY.search(self._rest) is not None
                return at
            if sign == _OBJECT and self._depth == _REQUEST and self._listed:
                self._keep(data[kept:at])
                self._request = bytearray()
                return at
        else:
            self._depth -= 1
            if self._request is not None and self._depth == _LIST:
                self._keep(data[kept : at + 1])
                self._end()
                return at + 1
            self._listed = self._listed and self._depth >= _LIST
        return kept

    def _keep(self, piece: bytes) -> None:
        if self._request is None:
            self._rest += piece
            if len(self._rest) > LONGEST_REST:
                raise BodyTooLarge(f"The body has more than {LONGEST_REST} bytes outside of its requests.")
        else:
            self._request += piece
            if len(self._request) > self._longest:
                place = f"requests.{self._count}"
                raise BodyTooLarge(f"{place}: longer than {self._longest} bytes, the limit of a request.", param=place)

    def _end(self) -> None:
        assert self._request is not None
        self._sink(bytes(self._request).translate(_BREAKS) + b"\n")
        self._request = None
        self._rest += b"null"
        self._count += 1
        if self._count > self._most:
            raise BodyTooLarge(f"requests: more than {self._most}; split them.", param="requests")
