"""The interface through which `State` sends commands to one server, a Sentinel's master, or a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

Command = Sequence[str | bytes | int | float]
Lost = Callable[[str], None]


class Transport(Protocol):
    """A connection to the server. After a failure, the caller must close it and connect again."""

    def exchange(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """Send `commands` and return one reply per command, in order. The reply to a refused command is a
        StateUnavailable object.

        Raises StateUnavailable on timeout; then each of the commands may have been executed.
        """
        ...

    async def aclose(self) -> None: ...


class Client(Protocol):
    """Makes connections to one address."""

    async def connect(self, on_lost: Lost) -> Transport:
        """Open the connection that all callers share. `on_lost(reason)` is called once, when the connection fails.
        Raises StateUnavailable."""
        ...

    async def dial(self) -> Transport:
        """Open a connection for one caller, for commands that block. Raises StateUnavailable."""
        ...

    async def aclose(self) -> None:
        """Close all connections, including those that callers have not closed."""
        ...
