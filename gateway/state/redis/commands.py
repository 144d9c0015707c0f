"""The interface that State sends commands through: one server, a Sentinel's master, a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

Command = Sequence[str | bytes | int | float]
Lost = Callable[[str], None]


class Transport(Protocol):
    """One way to the server. After a failure it is of no more use: close it and connect again."""

    def exchange(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """One reply per command in its order; for a command that the server refused, a StateUnavailable in its place.

        Raises StateUnavailable when there is no telling what the server did, because it is away or slow.
        """
        ...

    async def aclose(self) -> None: ...


class Client(Protocol):
    """Makes doors for one address."""

    async def connect(self, on_lost: Lost) -> Transport:
        """The connection that all callers share; `on_lost(reason)` is called once, when it fails. Raises
        StateUnavailable."""
        ...

    async def dial(self) -> Transport:
        """A connection of one caller's own, for commands that block. Raises StateUnavailable."""
        ...

    async def aclose(self) -> None:
        """Close all connections, also those that were lent and not returned, as by a cancelled caller."""
        ...
