"""Timeouts of client connections: for incomplete heads, and for clients that stop reading."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from gateway.api.server.request_head import MAX_HEAD_BYTES, too_large
from gateway.api.server.uvicorn_protocol import InferenceProtocol
from gateway.errors import RequestTimeout
from gateway.runtime.write_batcher import WriteBatcher


class GuardedProtocol(InferenceProtocol):
    """A connection with timeouts. A client that reads no byte for `stall_s` seconds is disconnected. Its request then
    ends as interrupted."""

    head_timeout_s: ClassVar[float] = 10.0
    stall_s: ClassVar[float] = 60.0

    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_whole()
        self._forget_reader()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.unparsed += len(data)
        super().data_received(data)
        if self.handed_over:
            self._head_is_whole()
            return
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if self._head_timer is not None:
                self._head_is_whole()
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)
        if self.unparsed > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.refuse(too_large())

    def _head_is_whole(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        """Close the connection because the head of a request did not arrive in time. The client gets an error only
        if it has begun to send a head.
        """
        cycle = self.cycle
        resting = cycle is not None and self.headers is cycle.headers  # type: ignore[attr-defined]
        if self.unparsed and not resting:  # `resting`: the error would seem to answer the client's next request
            self.refuse(RequestTimeout(f"The request's head did not arrive within {self.head_timeout_s:g} seconds."))
        self._end()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.is_closing():
            self._end()

    def _end(self) -> None:
        """Close the connection at once, although the client may not have read everything."""
        self.outgoing.flush()
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_reader()

    def _watch_reader(self, unsent: int) -> None:
        self._stall_timer = self.loop.call_later(self.stall_s, self._look_at_reader, unsent)

    def _look_at_reader(self, unsent: int) -> None:
        """Disconnect a client that has read nothing since the last check; otherwise check again later. `unsent`: bytes
        that were left to send at the last check."""
        left = self.transport.get_write_buffer_size()
        if left < unsent:  # while writing is paused, no bytes are added
            self._watch_reader(left)
        else:
            self.transport.abort()

    def _forget_reader(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def guarded(*, head_timeout_s: float, stall_s: float) -> type[GuardedProtocol]:
    """Make the connection class of one uvicorn server. `head_timeout_s`: maximum seconds until the head of a request
    has arrived. `stall_s`: seconds after which a client that reads nothing is disconnected.
    """
    own = {"head_timeout_s": head_timeout_s, "stall_s": stall_s, "outgoing": WriteBatcher()}
    return type("Protocol", (GuardedProtocol,), own)
