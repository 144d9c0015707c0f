"""The load of a backend's server, as the server reports it or as this worker observes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)  # not frozen: several are made per request, and a frozen one takes four times as long
class Load:
    """The load of a server. `running`, `waiting`: numbers of requests, from all clients of the server."""

    running: float
    waiting: float = 0.0
    capacity: float | None = None
    """Maximum number of requests that the server processes at the same time; None while unknown."""
    kv_used: float | None = None
    """Share of the server's context memory that is in use, 0..1."""
    tokens_per_second: float | None = None
    """Recent output tokens per second, over all requests."""
    full_tokens_per_second: float | None = None
    """Output tokens per second while the server was full; None if it never was."""

    @property
    def full(self) -> bool:
        """Whether a further request would wait."""
        return self.waiting > 0 or (self.capacity is not None and self.running >= self.capacity)
