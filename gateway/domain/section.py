"""The base of every section of gateway.yaml and of policies."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base class of all sections of gateway.yaml and of policies. An unknown key in a section is an error. A loaded
    section cannot be changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
