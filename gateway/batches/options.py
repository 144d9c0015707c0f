"""Reads the options of a batch or a file: its metadata and its expiry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.batches.forms import ENDPOINTS
from gateway.errors import BadRequest

SHORTEST_S, LONGEST_S = 3600, 30 * 24 * 3600
_PAIRS, _NAME, _VALUE = 16, 64, 512


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The fields of a request for a batch in OpenAI's API."""

    input_file_id: str
    endpoint: str
    metadata: dict[str, str] | None
    output_expires_s: float | None


def read(asked: Mapping[str, Any]) -> BatchOptions:
    """Parse the body of a request for a batch in OpenAI's API. Unknown fields are ignored. Raises BadRequest."""
    file_id, endpoint, metadata = asked.get("input_file_id"), asked.get("endpoint"), asked.get("metadata")
    if not isinstance(file_id, str):
        raise BadRequest("input_file_id is required: the id of a file with purpose batch.", param="input_file_id")
    if not isinstance(endpoint, str) or endpoint not in ENDPOINTS:
        raise BadRequest(f"endpoint must be one of {', '.join(ENDPOINTS)}.", param="endpoint")
    if asked.get("completion_window") != "24h":
        raise BadRequest("completion_window must be 24h.", param="completion_window")
    if metadata is not None and not _is_metadata(metadata):
        raise BadRequest(
            f"metadata must be at most {_PAIRS} strings of {_VALUE} characters with names of {_NAME}.",
            param="metadata",
        )
    expires: Any = asked.get("output_expires_after")
    if expires is not None:
        if not isinstance(expires, dict):
            raise BadRequest("output_expires_after must be an object.", param="output_expires_after")
        expires = seconds(expires.get("anchor"), expires.get("seconds"), "output_expires_after.{}")
    return BatchOptions(file_id, endpoint, metadata, expires)


def seconds(anchor: object, length: object, param: str) -> float:
    """The seconds until a file expires, from the fields `anchor` and `seconds`. `length`: value of the field
    `seconds`. `param`: the fields' names for error messages, such as `expires_after[{}]`; `{}` stands for
    `anchor` or `seconds`. Raises BadRequest.
    """
    if anchor != "created_at":
        raise BadRequest(f"{param.format('anchor')} must be created_at.", param=param.format("anchor"))
    if type(length) is str and length.isascii() and length.isdigit():  # a form field is a string
        length = int(length[:9])
    if type(length) is not int or not SHORTEST_S <= length <= LONGEST_S:
        name = param.format("seconds")
        raise BadRequest(f"{name} must be a whole number from {SHORTEST_S} to {LONGEST_S}.", param=name)
    return float(length)


def _is_metadata(value: object) -> bool:
    return isinstance(value, dict) and len(value) <= _PAIRS and all(map(_is_pair, value.items()))


def _is_pair(pair: tuple[str, Any]) -> bool:
    name, value = pair
    return len(name) <= _NAME and isinstance(value, str) and len(value) <= _VALUE
