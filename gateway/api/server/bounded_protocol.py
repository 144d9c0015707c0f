"""uvicorn's HTTP/1.1 protocol with limits on the request target and on the framing of chunks."""

from __future__ import annotations

from collections import deque

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.api.server.request_head import (
    MAX_HEAD_BYTES,
    MAX_TARGET_BYTES,
    MOST_PER_BYTE,
    framing_too_large,
    target_too_long,
)


class BoundedProtocol(HttpToolsProtocol):
    """One client connection, with limits on the request target and on the framing of chunks. An exception in a callback
    also ends the call of the parser's `feed_data`."""

    unparsed = 0
    """Bytes received since the last complete head or piece of a body. They belong to a head, to trailers, or to the
    framing of chunks."""
    framing: int | None = None
    """For a chunked body: the bytes of framing so far, minus the framing that the size of the body so far allows. None
    for a body that is not chunked."""
    url = b""
    _fields: list[tuple[bytes, bytes]] | deque[tuple[bytes, bytes]]

    def on_message_begin(self) -> None:
        self.url = b""
        self.framing = None
        self.headers = self._fields = []

    def on_url(self, url: bytes) -> None:
        """Store the request target. Raises TargetTooLong."""
        self.url += url
        if len(self.url) > MAX_TARGET_BYTES:
            raise target_too_long()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_chunk_header(self) -> None:
        if self.framing is None:
            self.framing = 0

    def count_framing(self, framing: int, size: int) -> None:
        """Update the connection's count of framing bytes when a piece of a body arrives. `framing`: the count so far.
        `size`: bytes of the piece.

        Raises HeadTooLarge.
        """
        # `unparsed` includes the whole packet for the first piece in it, and nothing of the packet for the others.
        self.framing = framing + self.unparsed - (1 + MOST_PER_BYTE) * size
        if self.framing > MAX_HEAD_BYTES:
            raise framing_too_large()
