"""Fields of a client's JSON body that the gateway acts on: are they there, and of the right type?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.errors import BadRequest


class Wanted(NamedTuple):
    """What a field must be if it is given; null is as good as absent."""

    types: tuple[type, ...]
    words: str
    least: int | None = None
    most: int | None = None

    def accepts(self, value: Any) -> bool:
        """`type() in` also tells true from 1."""
        if type(value) not in self.types:
            return False
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def check(fields: Mapping[str, Any], wanted: Mapping[str, Wanted]) -> None:
    """Raises BadRequest naming the first field that is of a wrong type."""
    for name, value in fields.items():
        if value is not None and name in wanted and not wanted[name].accepts(value):
            raise BadRequest(f"{name} must be {wanted[name].words}.", param=name)


def read_model(fields: Mapping[str, Any]) -> str:
    """Raises BadRequest when there is none."""
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("model is required: the name of a model that GET /v1/models lists.", param="model")
    return model
