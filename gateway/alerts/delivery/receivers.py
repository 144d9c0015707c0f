"""Finds the receiver for a policy's alert target."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.alerts.delivery.posting import TIMEOUT_S, Poster
from gateway.alerts.delivery.slack import Slack
from gateway.alerts.delivery.smtp import Smtp
from gateway.alerts.delivery.webhooks import Webhooks
from gateway.settings.receivers import Addresses, ReceiverRefused

__all__ = ["TIMEOUT_S", "Answer", "Receivers"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A receiver's reply, without the receiver's address."""

    accepted: bool
    said: str


class Receiver(Protocol):
    async def deliver(self, reference: str, id: str, payload: bytes) -> tuple[bool, str]:
        """Deliver `payload` to the receiver at `reference` (`env:NAME`, `file:PATH`), which names the environment
        variable or file that contains the address. Never raises.

        Returns (whether it was accepted, the receiver's reply). A receiver can use `id` to drop repetitions. Takes at
        most TIMEOUT_S seconds.
        """
        ...


class Receivers:
    """Delivers to receivers of every kind. Opened and closed once."""

    def __init__(
        self,
        *,
        poster: Poster | None = None,
        webhooks: Webhooks | None = None,
        slack: Slack | None = None,
        smtp: Smtp | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        """`addresses`: the receivers that a policy may name."""
        self._addresses = addresses or Addresses()
        self._poster = poster or Poster()
        self._kinds: dict[str, Receiver] = {
            "webhook": webhooks or Webhooks(self._poster),
            "slack": slack or Slack(self._poster),
            "email": smtp or Smtp(),
        }
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def aclose(self) -> None:
        self._open = False
        await self._poster.aclose()

    async def deliver(self, target: str, id: str, payload: bytes) -> Answer:
        """Deliver to `target`, written as `env:NAME`, `slack:env:NAME`, `email:env:NAME` or `receiver:NAME`."""
        if not self._open:
            return Answer(False, "the gateway is stopping")
        try:
            kind, reference = self._addresses.kind_and_reference(target)
        except ReceiverRefused as error:
            return Answer(False, str(error))
        receiver = self._kinds.get(kind)
        if receiver is None:
            return Answer(False, f"{target} is not a kind of receiver in this version")
        accepted, reply = await receiver.deliver(reference, id, payload)
        return Answer(accepted, reply if reference.startswith("env:") else reply.replace(reference, target))

    async def deliver_all(self, deliveries: Sequence[tuple[str, str, bytes]]) -> list[Answer]:
        """Deliver each (target, id, payload). Several deliveries run concurrently, so that a hanging receiver does not
        delay the others."""
        return list(await asyncio.gather(*(self.deliver(*delivery) for delivery in deliveries)))
