"""Checks that fields have the right types and that required fields are present."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.domain.text.truncation import LONGEST_MODEL
from gateway.errors import BadRequest


class Wanted(NamedTuple):
    """The allowed types and the allowed range of an optional field. The value null counts as a missing field."""

    types: tuple[type, ...]
    words: str
    least: int | None = None
    most: int | None = None


def check(fields: Mapping[str, Any], wanted: Mapping[str, Wanted]) -> None:
    """Check the optional fields `wanted` (name → allowed types and range). Raises BadRequest with the name of the first
    field that has a wrong type or value."""
    for name in filter(wanted.__contains__, fields):
        if (value := fields[name]) is not None:
            types, words, least, most = wanted[name]
            right = type(value) in types  # types are compared exactly, because isinstance(True, int) is true
            if not right or (least is not None and value < least) or (most is not None and value > most):
                raise BadRequest(f"{name} must be {words}.", param=name)


def read_model(fields: Mapping[str, Any]) -> str:
    """The requested model. Raises BadRequest if the model is missing or its name is too long."""
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("model is required: the name of a model that GET /v1/models lists.", param="model")
    if len(model) > LONGEST_MODEL:
        raise BadRequest(f"model must have at most {LONGEST_MODEL} characters.", param="model")
    return model
