"""uvicorn's WebSocket protocol, for connections that `uvicorn_protocol.py` hands over. The module is imported for
the first such connection.
"""

from __future__ import annotations

from asyncio import TimerHandle
from types import SimpleNamespace
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gateway.api.server.asgi import Headers


class SocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket. A client that reads nothing for `stall_s` seconds is disconnected."""

    stall_s = 60.0
    cycle: ClassVar = SimpleNamespace(response_started=True, response_complete=False)
    """The request in progress, as `leave` of `shutdown.py` reads it. It always counts as begun, so that `leave` does
    not close the socket; sockets close themselves at shutdown."""
    _stall_timer: TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def take_over(http: HttpToolsProtocol, url: bytes, headers: Headers, rest: bytes) -> None:
    """Give the connection of `http` to a WebSocket, which answers the handshake and reads everything after it. `url`,
    `headers`: those of the handshake. `rest`: bytes that arrived after the handshake.
    """
    http.connections.discard(http)
    head = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    protocol = SocketProtocol(config=http.config, server_state=http.server_state, app_state=http.app_state)
    protocol.connection_made(http.transport)
    http.transport.set_protocol(protocol)
    protocol.data_received(b"GET %b HTTP/1.1\r\n%b\r\n%b" % (url, head, rest))
