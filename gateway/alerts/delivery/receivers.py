"""Delivers alerts to the receivers that policies name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType

from gateway.alerts.delivery.posting import TIMEOUT_S, Poster
from gateway.alerts.delivery.sender import Destination, Sender
from gateway.domain.receiver_kinds import KINDS
from gateway.settings.environment import receiver, receiver_secret
from gateway.settings.receivers import Addresses, ReceiverRefused

__all__ = ["TIMEOUT_S", "Answer", "Receivers"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A receiver's reply, without the receiver's address."""

    accepted: bool
    said: str


class Receivers:
    """Delivers alerts to receivers of all kinds. It can be opened and closed only once."""

    def __init__(
        self,
        *,
        poster: Poster | None = None,
        addresses: Addresses | None = None,
        address_of: Callable[[str], str] = receiver,
        secret_of: Callable[[str], str] = receiver_secret,
        senders: Mapping[str, Sender] = MappingProxyType({}),
    ) -> None:
        """`addresses`: the receivers that a policy may name. `address_of`, `secret_of`: convert `env:NAME` or
        `file:PATH` to an address or a secret. `senders`: kind → sender, used instead of the sender in `KINDS`."""
        self._addresses, self._address_of, self._secret_of = addresses or Addresses(), address_of, secret_of
        self._poster = poster or Poster()
        self._senders = dict(senders)
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def aclose(self) -> None:
        self._open = False
        await self._poster.aclose()

    async def deliver(self, target: str, id: str, payload: bytes) -> Answer:
        """Deliver an alert to `target`, which is written as `env:NAME`, `slack:env:NAME` … or `receiver:NAME`."""
        if not self._open:
            return Answer(False, "the gateway is stopping")
        try:
            kind, reference = self._addresses.kind_and_reference(target)
        except ReceiverRefused as error:
            return Answer(False, str(error))
        accepted, reply = await self._deliver(kind, reference, id, payload)
        return Answer(accepted, reply if reference.startswith("env:") else reply.replace(reference, target))

    async def _deliver(self, kind: str, reference: str, id: str, payload: bytes) -> tuple[bool, str]:
        address, form = await asyncio.to_thread(self._address_of, reference), KINDS[kind].form
        if not address:
            return False, f"{reference} is not set in the gateway's environment"
        if not form.fits(address):
            return False, f"what the variable or file holds is no {form.called}"
        if kind not in self._senders:
            self._senders[kind] = await asyncio.to_thread(_sender, KINDS[kind].sender, self._poster)
        return await self._senders[kind].deliver(
            Destination(reference, address, self._secret_of(reference)), id, payload
        )

    async def deliver_all(self, deliveries: Sequence[tuple[str, str, bytes]]) -> list[Answer]:
        """Deliver each (target, id, payload). Several deliveries run at the same time, so that a slow receiver does not
        delay the others."""
        return list(await asyncio.gather(*(self.deliver(*delivery) for delivery in deliveries)))


def _sender(name: str, poster: Poster) -> Sender:
    """Make a sender. `name`: its module and class, such as `slack.Slack`. The module is imported here, which may be
    slow."""
    module, _, class_name = name.partition(".")
    made: Sender = getattr(import_module(f"gateway.alerts.delivery.{module}"), class_name)(poster)
    return made
