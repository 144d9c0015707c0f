"""Thinking options of a request, and signatures of thinking blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNSIGNED = "thriftgate-unsigned"
"""The signature of thoughts from a backend that signs none. An Anthropic backend would refuse a request for them."""

_BUDGETS = ((8192, "high"), (2048, "medium"))
"""Least budget in tokens → effort; 1024 is the smallest that there is."""
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""What every server that knows efforts accepts."""


def effort(body: Mapping[str, Any]) -> str | None:
    """As OpenAI's `reasoning_effort`; None: as the model does by itself.

    That goes for disabled thinking too: `none` is refused by most models, so they think unseen.
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
    """Does the client want to see thoughts? Who did not ask for them takes the first block for the answer."""
    thinking = body.get("thinking") or {}
    return thinking.get("type") not in (None, "disabled") and thinking.get("display") != "omitted"
