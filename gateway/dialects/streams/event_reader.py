"""Base of event readers: passes on whole events until the stream ends or fails."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gateway.dialects.streams import sse
from gateway.domain.money.usage import Usage
from gateway.errors import BackendError, StreamBroken

FOLD_BYTES = 64 * 1024
"""Number of stored bytes of events after which they are parsed. With this limit, a long stream needs little memory."""


class EventReader(ABC):
    """The part of a `StreamReader` that does not depend on the contents of events. Subclasses implement `feed`. They
    may pass on simple events themselves, and call `_feed` for all others. Defaults are attributes of the class, so that
    a new stream costs fewer steps."""

    usage: Usage | None = None
    finish = ""
    ended = False
    ending = b""
    _smooth = False
    """Whether the stream is between two events and in no special state. If so, the next data may be passed on after a
    quick check."""
    _failure: BackendError | None = None

    def __init__(self) -> None:
        self._framer = sse.Framer()

    @property
    def reported(self) -> Usage | None:
        return self.usage

    def _feed(self, data: bytes, taken: int = 0) -> bytes:
        """Return the events in `data` to send to the client now. `taken`: number of bytes of `data` that are
        already processed.

        A failure is raised after the events before it were returned.
        """
        if self._failure:
            raise self._failure
        if self.ended:
            return b""
        relayed = data[:taken] + self._relay(self._framer.feed(data[taken:]))
        self._smooth = self._framer.empty and not self.ended and not self._failure
        if self._failure and not relayed:
            raise self._failure
        return relayed

    @abstractmethod
    def _relay(self, block: bytes) -> bytes:
        """The events of `block` that are sent to the client. `block` consists of whole events."""

    @abstractmethod
    def _read(self, event: bytes) -> object:
        """Process an event. It may contain a part of the answer, report a failure, or end the stream."""

    def eof(self) -> None:
        """Called at the end of the stream. Raises the failure that the stream reported. Raises StreamBroken if the
        stream has no terminating event."""
        if self.ended:
            return
        self._read_rest()
        if not self.ended:
            raise StreamBroken("The backend closed its stream before the answer was complete.")

    def _read_rest(self) -> None:
        """Process the last event of the stream, even if the blank line after it is missing."""
        rest = self._framer.rest()
        if not self._failure and sse.lacks_only_its_end(rest):
            self._take_last(rest)
        if self._failure:
            raise self._failure

    def _take_last(self, event: bytes) -> None:
        self._read(event)
