"""The base of every section of gateway.yaml and of policies."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Strict and immutable: an unknown key is an error, and a loaded policy never changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
