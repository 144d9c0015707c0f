"""Parameters that each generation of Anthropic's models accepts, by model name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_NUMBERS = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2})(?!\d))?(?!\d)")
"""`claude-3-7-sonnet-20250219`, `anthropic/claude-sonnet-4.5`, `claude-opus-4-20250514`, `claude-fable-5`."""


MOST_USUAL_OUTPUT = 32_000
"""Tokens: the most that any model is told when the client set no limit."""


class Abilities(NamedTuple):
    """Of a model. The defaults are those of one whose name says nothing: it is sent what the client asked for."""

    adaptive: bool = False
    """Thinks as much as it sees fit, guided by an effort."""
    budget: bool = False
    """Thinks only when it is told for how many tokens."""
    highest: str = "max"
    """The word for an effort of `xhigh`."""
    sampling: bool = True
    """Takes `temperature`, `top_p` and `top_k`; later ones refuse them."""
    both: bool = True
    """Takes `temperature` and `top_p` in one request."""
    usual_output: int = 4096
    """Tokens of an answer when the client set no limit: Anthropic wants one, and every model takes this."""


UNKNOWN = Abilities(highest="xhigh")


@lru_cache(maxsize=256)
def abilities(model: str) -> Abilities:
    """What `model`, as the operator named it, takes."""
    found = _NUMBERS.search(model.lower())
    if found is None:
        return UNKNOWN
    version = (int(found[1]), int(found[2] or 0))
    return Abilities(
        adaptive=version >= (4, 6),
        budget=(3, 7) <= version < (4, 6),
        highest="xhigh" if version >= (4, 7) else "high",
        sampling=version < (4, 7),
        both=version < (4, 1),
        usual_output=MOST_USUAL_OUTPUT if version >= (4, 5) else 4096,
    )
