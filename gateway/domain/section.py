"""The base class of all sections of gateway.yaml and of policies."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """The base class of all sections of gateway.yaml and of policies. An unknown key in a section is an error. A loaded
    section cannot be changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def __copy__(self) -> Self:
        """Make a copy without the cached properties, because `model_copy` may change the fields from which they were
        computed."""
        copy = super().__copy__()
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy
