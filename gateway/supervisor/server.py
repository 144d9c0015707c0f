"""The HTTP server of one worker: uvicorn on the supervisor's listening socket."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import cast

import uvicorn

from gateway.api.server.shutdown import LAST_ANSWER, Connection, leave
from gateway.api.server.timeouts import guarded
from gateway.app import Application
from gateway.runtime.garbage_collection import settle
from gateway.runtime.tasks import Tasks
from gateway.wiring import Worker

BEAT_S = 1.0
SOON_S = 0.05
"""Seconds between heartbeats before the worker is ready. They are frequent, because the supervisor waits for the
worker."""


class Server(uvicorn.Server):
    """A uvicorn server that reports its state to the supervisor, and finishes open streams before it ends."""

    def __init__(self, config: uvicorn.Config, application: Application, report: Callable[[str], None]) -> None:
        super().__init__(config)
        self._application, self._report = application, report
        self._exit_requested = asyncio.Event()
        self._tasks = Tasks()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        drain, self._loop = self._application.wiring.drain, asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGUSR1, lambda: setattr(drain, "draining", True))
        await super().startup(sockets)
        settle()
        self._tasks.spawn(self._beat(), "heartbeat")

    async def _beat(self) -> None:
        """Send heartbeats until cancelled. This runs in the event loop, so the heartbeats stop if the loop is
        blocked."""
        ring = self._application.wiring.ring
        while True:
            self._report("ready" if ring.ready else "open")
            await asyncio.sleep(BEAT_S if ring.ready else SOON_S)

    async def main_loop(self) -> None:
        """Wait for the signal to exit. This replaces uvicorn's method, which checks ten times per second."""
        await self._exit_requested.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to shut down at SIGTERM or SIGINT. Uvicorn would send the signal to itself again afterwards; this
        server does not."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        if self.started:
            self._loop.call_soon_threadsafe(self._exit_requested.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        self.server_state.default_headers = LAST_ANSWER
        if (sockets_of_clients := self._application.sockets) is not None:
            sockets_of_clients.leave()
        connections = cast(set[Connection], self.server_state.connections)
        await leave(connections, self._application.wiring.worker.settings.config.shutdown.grace_period)
        await super().shutdown(sockets)
        await self._tasks.aclose()


def serve(worker: Worker, report: Callable[[str], None]) -> None:
    """Serve requests until SIGTERM, and then finish the streams in progress. SIGHUP reloads the policies. SIGUSR1 sets
    the readiness endpoint to "not ready".

    `report`: called about once a second, with `open` (the worker accepts connections) or `ready` (it answers requests).
    If the application cannot start, raises its error.
    """
    application = Application(worker)
    requests = worker.settings.config.requests
    protocol = guarded(head_timeout_s=requests.head_timeout, stall_s=requests.stall)
    application.outgoing = protocol.outgoing
    config = uvicorn.Config(
        application,
        loop="uvloop",
        http=protocol,
        ws="none",  # imported when the first socket is opened
        ws_max_size=requests.max_body_bytes,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,  # for requests that remain after the drain
    )
    # Uvicorn's own `fd` option treats every descriptor as a unix socket and so leaves Nagle's algorithm on: each answer
    # on a kept connection would wait 40 ms for an acknowledgement.
    listening = None if worker.fd is None else [socket.socket(fileno=worker.fd)]
    try:
        Server(config, application, report).run(sockets=listening)
    except SystemExit:
        if application.failure is None:
            raise
        raise application.failure from None
