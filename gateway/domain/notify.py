"""Sections of gateway.yaml and of policies that name one alert receiver each. Such a section has one key for each kind
of receiver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, create_model, model_validator

from gateway.domain.receiver_kinds import IN_POLICIES, KINDS, target
from gateway.domain.section import Section

RECEIVER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

Severity = Literal["info", "warning", "critical"]

VARIABLE = r"^env:[A-Z][A-Z0-9_]*$"


def keyed_by_kind(kinds: Sequence[str], reference: Any, written: str, others: Sequence[str] = ()) -> Any:
    """Make the class of a section that has one optional key for each of `kinds`. `reference`: type of the values.
    `written`: example of a value, for the keys' descriptions. `others`: names of keys that subclasses add, for
    error messages.
    """
    elsewhere = [kind for kind in KINDS if kind not in kinds]

    def refuse(value: object) -> None:
        known = f"no kind of receiver here; the kinds are {_listed(kinds)}"
        known += f"; only `receivers` in gateway.yaml can have {_listed(elsewhere)}" if elsewhere else ""
        raise ValueError(known + (f"; other keys are {_listed(others)}" if others else ""))

    class Keyed(Section):
        # Other keys are validated only to be refused, each with its own line in the error. None is ever stored.
        model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False})
        __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(refuse)]]

    fields: dict[str, Any] = {
        kind: (reference | None, Field(None, description=f"{written} {KINDS[kind].address}.")) for kind in kinds
    }
    return create_model("Keyed", __base__=Keyed, **fields)


def chosen(section: Section, keys: Sequence[str]) -> tuple[str, str]:
    """Find the key among `keys` that is set, and its value. Raises ValueError if none or more than one is set."""
    found = [(key, value) for key in keys if (value := getattr(section, key)) is not None]
    if len(found) != 1:
        raise ValueError(f"give one of {_listed(keys)}")
    return found[0]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


_Variable = Annotated[str, Field(pattern=VARIABLE, max_length=100)]

if TYPE_CHECKING:
    _ByVariable = Section
else:
    _ByVariable = keyed_by_kind(IN_POLICIES, _Variable, "env:NAME of the variable with", ("receiver", "severity"))


class Notify(_ByVariable):
    """A receiver of alerts, as a policy names it. Its address must come from the operator's environment, never from a
    policy file."""

    receiver: Annotated[str, Field(pattern=RECEIVER_NAME, max_length=64)] | None = Field(
        None, description="Instead: one of the operator's `receivers`; where there are any, only those may be named."
    )
    severity: Severity = Field("info", description="Only alerts that are at least so severe: info, warning, critical.")

    @model_validator(mode="after")
    def _one_receiver(self) -> Notify:
        chosen(self, (*IN_POLICIES, "receiver"))
        return self

    @property
    def target(self) -> str:
        """The receiver as text for lists and tables: `env:NAME`, `slack:env:NAME` …, or `receiver:NAME`."""
        return target(*chosen(self, (*IN_POLICIES, "receiver")))
