"""The protocol of the classes that deliver alerts, one for each kind of receiver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.alerts.delivery.posting import Poster


@dataclass(frozen=True, slots=True)
class Destination:
    """One receiver of alerts. Its address and secret are read again for every alert, so that changes apply at once."""

    reference: str
    """`env:NAME` or `file:PATH`, for error texts."""
    address: str = field(repr=False)
    """The address in the variable or file. Its form depends on the receiver's kind (`ReceiverKind.form`)."""
    secret: str = field(default="", repr=False)
    """The content of NAME_SECRET; empty if it is not set."""


class Sender(Protocol):
    """Delivers to all receivers of one kind. `ReceiverKind.sender` names the class."""

    def __init__(self, poster: Poster) -> None:
        """`poster`: the HTTP client that all senders share."""

    async def deliver(self, to: Destination, id: str, payload: bytes) -> tuple[bool, str]:
        """Deliver `payload`, an alert in JSON. Never raises.

        Returns (whether the receiver accepted the alert, the receiver's reply without the receiver's address). Repeated
        deliveries of one alert have the same `id`, so that a receiver can drop repetitions. Takes TIMEOUT_S seconds at
        most.
        """
        ...


def title(payload: Mapping[str, Any]) -> str:
    """The event in a few words: `80%`, `spend rate`."""
    return str(payload.get("threshold") or payload.get("kind", "alert")).replace("_", " ")
