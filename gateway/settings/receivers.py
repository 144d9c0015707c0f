"""Alert receivers: the operator's `receivers` section, and the variables that policies may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from gateway.domain.policy import Section
from gateway.settings.environment import PROVIDER_KEYS

Reference = Annotated[str, Field(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$", max_length=1000)]
OWN_PREFIX = "THRIFTGATE_"
_PROVIDERS_OWN = frozenset(PROVIDER_KEYS.values())


class ReceiverSettings(Section):
    """One entry of `receivers:`. Its address is read for every alert, so that a change needs no restart."""

    webhook: Reference | None = Field(
        None, description="env:NAME or file:PATH of a URL; posts are signed with NAME_SECRET."
    )
    slack: Reference | None = Field(
        None, description="Instead of webhook: reference to the URL of an incoming webhook like Slack's."
    )
    email: Reference | None = Field(
        None, description="Instead of webhook: reference to mail addresses, separated by commas."
    )

    @model_validator(mode="after")
    def _one_address(self) -> ReceiverSettings:
        if sum(address is not None for address in (self.webhook, self.slack, self.email)) != 1:
            raise ValueError("give one of webhook, slack and email")
        return self

    @property
    def target(self) -> str:
        """The target in the form used in policies: `env:NAME`, `slack:file:PATH` …"""
        if self.webhook is not None:
            return f"webhook:{self.webhook}"
        return f"slack:{self.slack}" if self.slack is not None else f"email:{self.email}"


class KnownReceivers(NamedTuple):
    """The receivers in the current gateway.yaml."""

    receivers: Mapping[str, ReceiverSettings] | None = None
    reserved: frozenset[str] = frozenset()
    """Environment variables to which gateway.yaml itself refers."""


class ReceiverRefused(ValueError):
    """The reason why a policy's target receives no alerts. Contains no address."""


class Addresses:
    """Finds the address for a policy's target. `known` is called for every alert."""

    def __init__(self, known: Callable[[], KnownReceivers] = KnownReceivers) -> None:
        self._known = known

    def kind_and_reference(self, target: str) -> tuple[str, str]:
        """(`webhook`, `slack` or `email`; `env:NAME` or `file:PATH`). Raises ReceiverRefused."""
        known = self._known()
        kind, _, rest = target.partition(":")
        if kind == "receiver":
            entry = (known.receivers or {}).get(rest)
            if entry is None:
                raise ReceiverRefused(f"the operator's file has no receiver called {rest!r}")
            kind, _, rest = entry.target.partition(":")
            return kind, rest
        kind, reference = ("webhook", target) if kind == "env" else (kind, rest)
        if known.receivers is not None:
            raise ReceiverRefused(
                f"{reference} is not allowed in a policy; use one of the operator's receivers instead"
            )
        name = reference.removeprefix("env:")
        if not reference.startswith("env:") or is_own(name, known.reserved) or is_own(f"{name}_SECRET", known.reserved):
            raise ReceiverRefused(f"{reference} is a variable of the gateway itself; use another one")
        return kind, reference


def is_own(name: str, reserved: frozenset[str]) -> bool:
    """Whether the gateway itself uses this variable."""
    return name.startswith(OWN_PREFIX) or name in _PROVIDERS_OWN or name in reserved
