"""Collects the writes to connections during one turn of the event loop, and makes them together.

A write wakes the process that reads from the connection. If this process sleeps on the same machine, waking it costs
more than the write itself. If several writes are made together, only the first of them wakes the process. Without load
there is only one write per turn, so nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

MOST_BYTES = 65536
"""Maximum bytes that wait for the end of the loop's turn. More bytes are written at once, so that the transport's own
flow control applies."""

log = logging.getLogger(__name__)


def send_at_once(transport: asyncio.WriteTransport, *, at_most: int = 0) -> None:
    """Have `transport` send data as soon as they are written. A transport of uvloop otherwise sends less than its high
    water mark only after all callbacks that are ready, so the receiver would wait for work that does not concern it.

    `at_most`: bytes that may wait until then all the same.
    """
    if transport.get_extra_info("sslcontext") is None:  # with TLS, the mark applies to the data before encryption
        transport.set_write_buffer_limits(high=at_most)


class WriteBatcher:
    """Collects the writes of one event loop. Call `flush` before a transport is closed or half-closed, and before data
    are written to it directly."""

    before: Callable[[], object] | None = None
    """Called by `flush` before data are sent, to store what must be stored first."""
    _flushes = False
    """Whether `flush` will be called at the end of this turn."""

    def __init__(self) -> None:
        self.pending: list[tuple[asyncio.WriteTransport, bytes]] = []
        """The data that wait. While there are any, nothing may be written to a transport directly."""
        self._bytes = 0

    def add(self, transport: asyncio.WriteTransport, data: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Send `data` at the end of this turn of the event loop. Data for the same transport are sent in the order of
        the calls."""
        if not self._flushes:
            self._flushes = True
            loop.call_soon(self.flush)
        self.pending.append((transport, data))
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            self.flush()

    def flush_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call `flush` at the end of this turn of the event loop, even if no data wait."""
        if not self._flushes:
            self._flushes = True
            loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send all waiting data now. Data for a closed transport are dropped."""
        pending, self.pending, self._bytes, self._flushes = self.pending, [], 0, False
        if self.before is not None:
            self.before()
        for transport, data in pending:
            if transport.is_closing():
                continue
            try:
                transport.write(data)
            except Exception:  # one broken transport must not block the others
                log.exception("a connection cannot be written to")
                transport.abort()
