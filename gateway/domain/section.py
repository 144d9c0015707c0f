"""The base of every section of gateway.yaml and of policies."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base class of all sections of gateway.yaml and of policies. An unknown key in a section is an error. A loaded
    section cannot be changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def __copy__(self) -> Self:
        """A copy without cached properties, because `model_copy` may change the fields that they are computed from."""
        copy = super().__copy__()
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy
