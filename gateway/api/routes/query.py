"""Parses URL query parameters."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.errors import BadRequest

_DIGITS = 9
"""Maximum digits of a number in a query."""


def whole_number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    """`query[name]`, between 1 and `most`; `default` if absent. Raises BadRequest."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and 1 <= int(text) <= most):
        raise BadRequest(f"{name} must be a whole number from 1 to {most}.", param=name)
    return int(text)


def refuse(query: Mapping[str, str], *names: str) -> None:
    """Raise BadRequest if the query has one of `names`, because they have no meaning on this route."""
    for name in names:
        if name in query:
            raise BadRequest(f"{name} is not known here; leave it out.", param=name)
