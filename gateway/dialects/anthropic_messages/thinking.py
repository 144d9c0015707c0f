"""Thinking options of a request, and signatures of thinking blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNSIGNED = "thriftgate-unsigned"
"""A signature that marks thinking from a backend that does not sign its thinking. Anthropic would reject a request with
this signature, so such blocks are removed before a request is sent to Anthropic."""

_BUDGETS = ((8192, "high"), (2048, "medium"))
"""(Minimum thinking budget in tokens, effort). The smallest budget that Anthropic accepts is 1024."""
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Effort → the nearest effort that all servers with a reasoning effort accept."""


def effort(body: Mapping[str, Any]) -> str | None:
    """The effort of the request as a value of OpenAI's `reasoning_effort`; None: the model's default effort. The result
    is also None if the client has disabled thinking, because most models reject the effort `none`. The model then
    thinks, but the gateway hides the thinking from the client."""
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
    """Whether thinking is sent to the client. Thinking is the first block of an answer. A client that did not ask for
    thinking would take this block for the answer's text."""
    thinking = body.get("thinking") or {}
    return thinking.get("type") not in (None, "disabled") and thinking.get("display") != "omitted"
