"""Passes on streams whose content the gateway does not parse: events of any kind, audio, images."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.answers.upstream_error import broken, find_error
from gateway.dialects.answers.usage import any_usage, later
from gateway.dialects.streams import sse
from gateway.domain.money.usage import Usage
from gateway.errors import BackendError, BackendGarbage, StreamBroken

_LAST = (".done", ".completed")
"""Suffixes of event types. An event with such a type may be the last event of the stream."""
_WORTH_READING = (b'"usage"', b'.done"', b'.completed"', b"error")


class _Unparsed:
    """Base class of stream readers that do not parse the stream. They read no text and store nothing."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.finish = ""
        self.ended = False
        self.ending = b""
        self.chunks = 0
        self.silent = self.most_characters = 0

    @property
    def reported(self) -> Usage | None:
        return self.usage

    @property
    def confidence(self) -> float | None:
        return None

    def cut(self, delivered: Usage) -> bytes | None:
        return None

    def completion(self) -> bytes | None:
        return None

    def delivered_text(self) -> str:
        return ""

    def delivered_characters(self) -> int:
        return 0


class Opaque(_Unparsed):
    """Passes on bytes of any kind. The answer counts as complete when the backend closes the connection, because
    there is no other sign.
    """

    def feed(self, data: bytes) -> bytes:
        self.chunks = self.silent = self.chunks + 1
        return data

    def eof(self) -> None:
        """Raises BackendGarbage if the answer was empty."""
        if not self.chunks:
            raise BackendGarbage("The backend answered with nothing.")
        self.finish = "stop"


class Events(_Unparsed):
    """Passes on server-sent events. An event that may be the last one is not sent at once, but kept in `ending`."""

    def __init__(self) -> None:
        super().__init__()
        self._framer = sse.Framer()
        self._failure: BackendError | None = None

    def feed(self, data: bytes) -> bytes:
        if self._failure:
            raise self._failure
        relayed = b"".join([self._relayed(event) for event in sse.events(self._framer.feed(data))])
        if self._failure and not relayed:
            raise self._failure
        return relayed

    def _relayed(self, event: bytes) -> bytes:
        if self.ended or self._failure:
            return b""
        before, self.ending, self.finish = self.ending, b"", ""
        self.chunks += 1
        if any(word in event for word in _WORTH_READING) or b"[DONE]" in event:
            self._read(event)
        if self._failure:
            return before
        if not self.finish:
            return before + event
        self.ending = event
        return before

    def _read(self, event: bytes) -> None:
        name, data = sse.fields(event)
        if data == b"[DONE]":
            self.ended, self.finish = True, "stop"
            return
        parsed = _parsed(data)
        error = find_error(parsed)
        if type(parsed) is dict:
            inner = parsed.get("response")
            counted = parsed.get("usage") or (inner.get("usage") if type(inner) is dict else None)
            self.usage = later(any_usage(counted), self.usage)
        if error or name == b"error":
            self._failure = broken(error, data)
        elif type(parsed) is dict:
            self.finish = "stop" if str(parsed.get("type")).endswith(_LAST) else ""

    def eof(self) -> None:
        """Called at the end of the stream. Raises StreamBroken if the stream failed or is incomplete, and
        BackendGarbage if it contained no event."""
        if self._failure:
            raise self._failure
        if self._framer.rest():
            raise StreamBroken("The backend closed its stream in the middle of an event.")
        if not self.chunks:
            raise BackendGarbage("The backend ended its stream without an event.")
        self.finish = "stop"


def _parsed(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
