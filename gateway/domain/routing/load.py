"""Load of a backend's server, as it reports it or as this worker sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)  # not frozen, at four times the cost, though nobody changes one: several are made a request
class Load:
    """`running` and `waiting` count the requests of all clients of the server."""

    running: float
    waiting: float = 0.0
    capacity: float | None = None
    """Requests that it processes at a time; None while unknown."""
    kv_used: float | None = None
    """Of its memory for contexts, 0..1."""
    tokens_per_second: float | None = None
    """Written, over all requests, of late."""
    full_tokens_per_second: float | None = None
    """The same while it was full; None as long as it never was."""

    @property
    def full(self) -> bool:
        """A further request would wait."""
        return self.waiting > 0 or (self.capacity is not None and self.running >= self.capacity)
