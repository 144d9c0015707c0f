"""The HTTP server of one worker: uvicorn on the supervisor's socket."""

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
"""Pause between beats until it is ready, for which others wait."""


class Server(uvicorn.Server):
    """uvicorn that reports its state, and shuts down without breaking a connection."""

    def __init__(self, config: uvicorn.Config, application: Application, say: Callable[[str], None]) -> None:
        super().__init__(config)
        self._application, self._say = application, say
        self._asked = asyncio.Event()
        self._tasks = Tasks()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        drain, self._loop = self._application.wiring.drain, asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGUSR1, lambda: setattr(drain, "draining", True))
        await super().startup(sockets)
        settle()
        self._tasks.spawn(self._beat(), "pulse")

    async def _beat(self) -> None:
        """From the loop itself: when it is stuck, there is silence."""
        ring = self._application.wiring.ring
        while True:
            self._say("ready" if ring.ready else "open")
            await asyncio.sleep(BEAT_S if ring.ready else SOON_S)

    async def main_loop(self) -> None:
        """Without uvicorn's ten looks a second at what only a signal changes."""
        await self._asked.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Unlike uvicorn's, it does not raise the signal again once all is closed."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        if self.started:
            self._loop.call_soon_threadsafe(self._asked.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        self.server_state.default_headers = LAST_ANSWER
        connections = cast(set[Connection], self.server_state.connections)  # web sockets are never made
        await leave(connections, self._application.wiring.worker.settings.config.shutdown.grace_period)
        await super().shutdown(sockets)
        await self._tasks.aclose()


def serve(worker: Worker, say: Callable[[str], None]) -> None:
    """One worker on the socket that the supervisor bound, until SIGTERM, which it follows at once but gently.

    SIGHUP reloads the policies, SIGUSR1 makes it not ready: the whole gateway will end. `say` takes one word a second,
    `open` or `ready`. Raises what kept it from starting.
    """
    application = Application(worker)
    requests = worker.settings.config.requests
    config = uvicorn.Config(
        application,
        loop="uvloop",
        http=guarded(head_timeout_s=requests.head_timeout, stall_s=requests.stall),
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,  # for what is left when the drain is over
    )
    # Not uvicorn's own `fd`: it takes every descriptor for a unix socket, so that Nagle's algorithm stays on and each
    # answer on a kept connection waits 40 ms for an acknowledgement.
    listening = None if worker.fd is None else [socket.socket(fileno=worker.fd)]
    try:
        Server(config, application, say).run(sockets=listening)
    except SystemExit:
        if application.failure is None:
            raise
        raise application.failure from None
