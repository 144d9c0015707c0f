"""The parameters that each generation of Anthropic's models accepts, by model name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_NUMBERS = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2})(?!\d))?(?!\d)")
"""Matches names such as `claude-3-7-sonnet-20250219`, `anthropic/claude-sonnet-4.5`, `claude-opus-4-20250514`,
`claude-fable-5`."""


MOST_USUAL_OUTPUT = 32_000
"""Maximum default output limit in tokens, for requests without a limit."""


class Abilities(NamedTuple):
    """The parameters that a model accepts. The defaults apply to a model of unknown version."""

    adaptive: bool = False
    """Whether it supports adaptive thinking: the model decides how much to think, guided by an effort."""
    budget: bool = False
    """Whether it thinks only if the request sets a budget of thinking tokens."""
    highest: str = "max"
    """The value to send for an effort of `xhigh`."""
    sampling: bool = True
    """Whether it accepts `temperature`, `top_p` and `top_k`. Newer models reject them."""
    both: bool = True
    """Whether it accepts `temperature` and `top_p` together."""
    usual_output: int = 4096
    """Output limit in tokens if the client set none. Anthropic requires a limit; all models accept this default."""


UNKNOWN = Abilities(highest="xhigh")


@lru_cache(maxsize=256)
def abilities(model: str) -> Abilities:
    """The parameters that `model` accepts. The name may be one that the operator chose."""
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
