"""Thinking options of a request, and signatures of thinking blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNSIGNED = "thriftgate-unsigned"
"""Signature that marks thinking from a backend that does not sign. An Anthropic backend would reject a request with
this signature."""

_BUDGETS = ((8192, "high"), (2048, "medium"))
"""(Minimum budget in tokens, effort). The smallest valid budget is 1024."""
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Effort → the value that all servers with efforts accept."""


def effort(body: Mapping[str, Any]) -> str | None:
    """The request's effort as OpenAI's `reasoning_effort`; None: the model's default.

    Disabled thinking also returns None, because most models reject `none`. They think, and the gateway hides the
    thoughts.
    """
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "disabled":
        return None
    wanted = (body.get("output_config") or {}).get("effort")
    if type(wanted) is str:
        return _EFFORTS.get(wanted)
    if thinking.get("type") != "enabled":
        return None
    budget = thinking.get("budget_tokens")
    most = budget if type(budget) is int else 0
    return next((name for least, name in _BUDGETS if most >= least), "low")


def shown(body: Mapping[str, Any]) -> bool:
    """Whether to send thinking to the client. A client that did not ask for it would take the first block for the
    answer."""
    thinking = body.get("thinking") or {}
    return thinking.get("type") not in (None, "disabled") and thinking.get("display") != "omitted"
