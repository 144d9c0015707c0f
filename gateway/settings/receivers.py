"""The alert receivers in the operator's section `receivers`, and the environment variables that policies may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field, model_validator

from gateway.domain.notify import chosen, keyed_by_kind
from gateway.domain.receiver_kinds import KINDS, kind_and_reference
from gateway.domain.section import Section
from gateway.settings.environment import PROVIDER_KEYS

Reference = Annotated[str, Field(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$", max_length=1000)]
OWN_PREFIX = "THRIFTGATE_"
_PROVIDERS_OWN = frozenset(PROVIDER_KEYS.values())

if TYPE_CHECKING:
    _ByReference = Section
else:
    _ByReference = keyed_by_kind(tuple(KINDS), Reference, "env:NAME or file:PATH of")


class ReceiverSettings(_ByReference):
    """One entry of `receivers:`. Its address is read for every alert, so that a change needs no restart."""

    @model_validator(mode="after")
    def _one_kind(self) -> ReceiverSettings:
        chosen(self, tuple(KINDS))
        return self

    @property
    def kind_and_reference(self) -> tuple[str, str]:
        """The kind of the receiver, and its address as `env:NAME` or `file:PATH`."""
        return chosen(self, tuple(KINDS))


class KnownReceivers(NamedTuple):
    """The receivers in the present gateway.yaml."""

    receivers: Mapping[str, ReceiverSettings] | None = None
    reserved: frozenset[str] = frozenset()
    """Environment variables to which gateway.yaml itself refers."""


class ReceiverRefused(ValueError):
    """Raised if a receiver that a policy names gets no alerts. The message contains no address."""


class Addresses:
    """Finds the address of a receiver that a policy names. `known`: returns the receivers in gateway.yaml; it is called
    for every alert."""

    def __init__(self, known: Callable[[], KnownReceivers] = KnownReceivers) -> None:
        self._known = known

    def kind_and_reference(self, target: str) -> tuple[str, str]:
        """Split a receiver's name in a policy into a kind of `KINDS` and the reference `env:NAME` or `file:PATH`.
        Raises ReceiverRefused."""
        known = self._known()
        kind, reference = kind_and_reference(target)
        if kind == "receiver":
            entry = (known.receivers or {}).get(reference)
            if entry is None:
                raise ReceiverRefused(f"the operator's file has no receiver called {reference!r}")
            return entry.kind_and_reference
        if kind not in KINDS:
            raise ReceiverRefused(f"{target} is not a kind of receiver in this version; kinds: {', '.join(KINDS)}")
        if known.receivers is not None or not KINDS[kind].in_policies:
            raise ReceiverRefused(
                f"{reference} is not allowed in a policy; use one of the operator's receivers instead"
            )
        name = reference.removeprefix("env:")
        if not reference.startswith("env:") or is_own(name, known.reserved) or is_own(f"{name}_SECRET", known.reserved):
            raise ReceiverRefused(f"{reference} is a variable of the gateway itself; use another one")
        if KINDS[kind].named not in name:
            raise ReceiverRefused(
                f"{reference} must have {KINDS[kind].named} in its name, so that no other secret is sent to {kind}"
            )
        return kind, reference


def is_own(name: str, reserved: frozenset[str]) -> bool:
    """Return whether the gateway itself uses the environment variable `name`. `reserved`: variables to which the
    gateway's own settings refer.
    """
    return name.startswith(OWN_PREFIX) or name in _PROVIDERS_OWN or name in reserved
