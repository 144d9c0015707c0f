"""The protocol for classes that deliver alerts. There is one class for each kind of receiver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.alerts.delivery.posting import Poster


@dataclass(frozen=True, slots=True)
class Destination:
    """One receiver of alerts. Its address and secret are read again for every alert, so that a change applies at
    once."""

    reference: str
    """`env:NAME` or `file:PATH`, for error texts."""
    address: str = field(repr=False)
    """The address in the variable or file. Its form depends on the receiver's kind (`ReceiverKind.form`)."""
    secret: str = field(default="", repr=False)
    """The content of NAME_SECRET; empty if it is not set."""


class Sender(Protocol):
    """Delivers alerts to all receivers of one kind. `ReceiverKind.sender` names the class for a kind."""

    def __init__(self, poster: Poster) -> None:
        """`poster`: the HTTP client that all senders share."""

    async def deliver(self, to: Destination, id: str, payload: bytes) -> tuple[bool, str]:
        """Deliver `payload`, an alert in JSON, within TIMEOUT_S seconds. Returns whether the receiver accepted it, and
        the reply without the address. `id`: the same for all attempts of one delivery. Never raises."""
        ...


def title(payload: Mapping[str, Any]) -> str:
    """The alert's title in a few words: `80%`, `spend rate`."""
    return str(payload.get("threshold") or payload.get("kind", "alert")).replace("_", " ")
