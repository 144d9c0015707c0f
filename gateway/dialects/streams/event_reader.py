"""Base of event readers: relays whole events until the stream ends or fails."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gateway.dialects.streams import sse
from gateway.domain.money.usage import Usage
from gateway.errors import BackendError, StreamBroken


class EventReader(ABC):
    """The part of a `StreamReader` that does not depend on what the events say.

    `feed` is each reader's own: it looks for what can be passed on without more ado, and leaves the rest to `_feed`.
    """

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.finish = ""
        self.ended = False
        self.ending = b""
        self._framer = sse.Framer()
        self._smooth = False
        """Between two events, nothing special pending: what comes may be relayed after one look."""
        self._failure: BackendError | None = None

    @property
    def reported(self) -> Usage | None:
        return self.usage

    def _feed(self, data: bytes, taken: int = 0) -> bytes:
        """What the client gets of `data`, of which `taken` bytes were looked at already.

        A failure is kept until everything before it was handed out.
        """
        if self._failure:
            raise self._failure
        if self.ended:
            return b""
        if taken:
            relayed = data[:taken] + self._relay(self._framer.feed(data[taken:]))
        else:
            relayed = self._relay(self._framer.feed(data))
        self._smooth = self._framer.empty and not self.ended and not self._failure
        if self._failure and not relayed:
            raise self._failure
        return relayed

    @abstractmethod
    def _relay(self, block: bytes) -> bytes:
        """What the client gets of a block of whole events."""

    @abstractmethod
    def _read(self, event: bytes) -> object:
        """Take note of what an event says, and of its failure or end."""

    def eof(self) -> None:
        """Whole is only what the backend ended: before, the final usage may be missing. Raises its failure, if any."""
        if self.ended:
            return
        self._read_rest()
        if not self.ended:
            raise StreamBroken("The backend closed its stream before the answer was complete.")

    def _read_rest(self) -> None:
        """The last event may lack its blank line."""
        rest = self._framer.rest()
        if not self._failure and sse.lacks_only_its_end(rest):
            self._take_last(rest)
        if self._failure:
            raise self._failure

    def _take_last(self, event: bytes) -> None:
        self._read(event)
