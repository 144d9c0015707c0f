"""Reads `prompt` or `input`. The field has one of four forms: a text, a list of texts, a list of tokens, or a list of
lists of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.domain.request import Turn
from gateway.errors import BadRequest

MAX_INPUTS = 10_000
"""Maximum number of inputs in one request. OpenAI accepts 2,048 inputs; some embedding servers accept more, others
fewer."""


class Inputs(NamedTuple):
    """The inputs of a request."""

    texts: list[str]
    """One text for each input. Empty if the inputs are tokens, which only the model can decode."""
    tokens: int | None = None
    """The number of tokens of all inputs. None if the inputs are texts."""

    @property
    def turns(self) -> list[Turn]:
        """One user turn per input."""
        return [Turn(index, "user", text) for index, text in enumerate(self.texts)]


def read_inputs(fields: Mapping[str, Any], name: str) -> Inputs:
    """Read the inputs in `fields[name]`. Raises BadRequest if they do not have one of the allowed forms, or if several
    forms are mixed."""
    value: Any = fields.get(name)
    if type(value) is str:
        return Inputs([value])
    kinds = set(map(type, value)) if type(value) is list else set()
    if kinds != {int} and type(value) is list and len(value) > MAX_INPUTS:
        raise BadRequest(f"{name} has {len(value)} inputs; send at most {MAX_INPUTS} at once.", param=name)
    if kinds == {str}:
        return Inputs(value)
    if kinds == {int}:
        return Inputs([""], _count(value, name))
    if kinds == {list}:
        return Inputs([""] * len(value), sum(_count(tokens, f"{name}[{at}]") for at, tokens in enumerate(value)))
    raise BadRequest(
        f"{name} must be a string, an array of strings, an array of tokens or an array of such arrays.", param=name
    )


def _count(tokens: list[Any], where: str) -> int:
    if not tokens or set(map(type, tokens)) != {int} or min(tokens) < 0:
        raise BadRequest(f"{where} must be an array of tokens, which are whole numbers from 0.", param=where)
    return len(tokens)
