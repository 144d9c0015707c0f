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
    """The effort of the request as OpenAI's `reasoning_effort`; None: the model's default. Also None if thinking is
    disabled, because most models reject `none`."""
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
    """Whether thinking is sent to the client. False if the client did not ask for it, because it would take it for the
    answer."""
    thinking = body.get("thinking") or {}
    return thinking.get("type") not in (None, "disabled") and thinking.get("display") != "omitted"
