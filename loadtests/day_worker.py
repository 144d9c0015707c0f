"""The gateway of a mixed day: one worker, in which an agent's request has the time at which it was recorded.

A day is replayed within minutes, but the pauses of agents' sessions decide what their prompt caches cost. So the
clients send the recorded time in a header, and the gateway's context plans and the scripted provider both go by it.
Everything else in the gateway goes by the real clock. `python -m loadtests.day_worker HOME PORT`
"""

from __future__ import annotations

import sys
import time
from contextvars import ContextVar
from pathlib import Path

import uvicorn
from starlette.types import Receive, Scope, Send

from gateway.api.server.timeouts import guarded
from gateway.app import Application
from gateway.settings.gateway import load_settings
from gateway.state.redis.embedded import EmbeddedServer
from gateway.supervisor.server import Server
from gateway.telemetry.log_lines import log_to
from gateway.wiring import Worker

RECORDED_AT = "x-day-at"
"""Header with the recorded time of a request, in seconds."""
_recorded: ContextVar[float | None] = ContextVar("recorded", default=None)


def monotonic() -> float:
    """The recorded time of the request in progress, else the real time."""
    at = _recorded.get()
    return time.monotonic() if at is None else at


class Replayed(Application):
    """The gateway's application. It notes the recorded time of each request that has one."""

    def endpoint(self, path: bytes) -> None:
        """None: every request is passed to `__call__`, which reads the header."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for name, value in scope.get("headers", ()):
            if name == RECORDED_AT.encode():
                _recorded.set(float(value))
        await super().__call__(scope, receive, send)


def main(home: Path, port: int) -> None:
    """Serve until SIGTERM, with the files in `home`."""
    log_to()
    settings = load_settings(home / "gateway.yaml", home / "data", [home / "policies"])
    requests = settings.config.requests
    state = EmbeddedServer(settings.paths.valkey, socket_path=settings.paths.socket)
    state.start()
    try:
        application = Replayed(Worker(settings, state.url, monotonic=monotonic))
        config = uvicorn.Config(
            application,
            port=port,
            loop="uvloop",
            http=guarded(head_timeout_s=requests.head_timeout, stall_s=requests.stall),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            backlog=2048,
            timeout_graceful_shutdown=1,
        )
        Server(config, application, lambda _: None).run()
    finally:
        state.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
