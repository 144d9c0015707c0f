"""Closes a worker's client connections so that no client writes to a connection that is being closed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from gateway.api.server.asgi import Headers

LINGER_S = 2.0
"""Seconds for which a connection must be idle before it is closed. Until then, a request may be on its way."""
LOOK_S = 0.1
LAST_ANSWER: Headers = [(b"connection", b"close")]
"""Headers that are added to each answer during shutdown."""


@dataclass(slots=True)
class ShutdownFlag:
    """Whether a shutdown has begun. The readiness route reads it. Requests are still served, because some clients do
    not know of the shutdown yet."""

    draining: bool = False


class Cycle(Protocol):
    """The attributes of uvicorn's request object that the shutdown uses."""

    response_started: bool
    response_complete: bool


class Connection(Protocol):
    """The attributes of uvicorn's connection that the shutdown uses.

    `shutdown` closes an idle connection at once. A busy connection is closed after the answer in progress.
    """

    @property
    def cycle(self) -> Cycle | None: ...
    def shutdown(self) -> None: ...


async def leave(connections: Collection[Connection], within_s: float) -> None:
    """Serve remaining requests, and close each connection once it is idle. Returns when all are closed, or after
    `within_s` seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    idle_since: dict[Connection, float] = {}
    while connections and (now := loop.time()) < deadline:
        still: dict[Connection, float] = {}
        for connection in list(connections):
            cycle = connection.cycle
            if cycle is None or cycle.response_complete:
                still[connection] = idle_since.get(connection, now)
                if now - still[connection] >= LINGER_S:
                    connection.shutdown()
            elif not cycle.response_started:
                connection.shutdown()
        idle_since = still
        await asyncio.sleep(LOOK_S)
