"""The parameters that each generation of Anthropic's models accepts, by model name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_NUMBERS = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2})(?!\d))?(?!\d)")
"""Matches the version in names such as `claude-3-7-sonnet-20250219`, `anthropic/claude-sonnet-4.5`,
`claude-opus-4-20250514`, `claude-fable-5`."""


MOST_USUAL_OUTPUT = 32_000
"""If a request has no output limit, the gateway adds a limit. This number is the maximum of the added limit, in
tokens."""


class Abilities(NamedTuple):
    """The parameters that a model accepts. The default values apply to a model of unknown version."""

    adaptive: bool = False
    """Whether the model supports adaptive thinking. Then the model decides how much to think, and the request may set
    an effort."""
    budget: bool = False
    """Whether the model thinks only if the request sets a budget of thinking tokens."""
    highest: str = "max"
    """The value that is sent if the client asks for the effort `xhigh`."""
    sampling: bool = True
    """Whether the model accepts `temperature`, `top_p` and `top_k`. Newer models reject these parameters."""
    both: bool = True
    """Whether the model accepts `temperature` and `top_p` in one request."""
    usual_output: int = 4096
    """The output limit in tokens if the client sets no limit. Anthropic requires a limit. All models accept the default
    value."""


UNKNOWN = Abilities(highest="xhigh")


@lru_cache(maxsize=256)
def abilities(model: str) -> Abilities:
    """The parameters that `model` accepts. `model` may also be a name that the operator chose."""
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
