"""Closes a worker's client connections so that no client writes into a closing one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from gateway.api.server.asgi import Headers

LINGER_S = 2.0
"""An idle connection is closed after this time; until then a request may be on its way."""
LOOK_S = 0.1
LAST_ANSWER: Headers = [(b"connection", b"close")]
"""Added to each answer during shutdown."""


@dataclass(slots=True)
class ShutdownFlag:
    """Shared by readiness and shutdown. Requests are still served, because some clients do not know yet."""

    draining: bool = False


class Cycle(Protocol):
    """A request and its answer, as uvicorn represents them."""

    response_started: bool
    response_complete: bool


class Connection(Protocol):
    """uvicorn's connection: `shutdown` closes an idle one, and makes the answer of a busy one the last."""

    @property
    def cycle(self) -> Cycle | None: ...
    def shutdown(self) -> None: ...


async def leave(connections: Collection[Connection], within_s: float) -> None:
    """Serve remaining requests, and close each connection once it has been idle for a while. Returns when none is left,
    or after `within_s`.

    An answer that has begun cannot announce that it is the last: its connection accepts one more request.
    """
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
