"""Lowers the output limit of a request to the limit that the team's policy sets."""

from __future__ import annotations

from gateway.dialects.facts import FACTS
from gateway.dialects.gemini_generate.request import OWN
from gateway.domain.request import CompletionRequest

_EFFORTS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
"""Reasoning effort → output tokens that are left for reasoning. These are the largest thinking budgets that the
gateway itself sends for an effort."""


def cap_output(request: CompletionRequest, most: int) -> None:
    """Lower the output limit of `request` to `most` tokens. A request without a limit gets this limit.

    Providers count thinking as output. So the thinking for which the client asked is added to `most`.
    """
    if not FACTS[request.dialect].limits_output:
        return
    allowed = most + _thinking_tokens(request)
    if request.max_output_tokens is None or request.max_output_tokens > allowed:
        request.max_output_tokens = request.output_cap = allowed


def _thinking_tokens(request: CompletionRequest) -> int:
    """Output tokens that the model may use for thinking, by the thinking budget or the effort in the request. 0 if the
    request has neither."""
    body = request.body
    if type(thinking := body.get("thinking")) is dict:
        if thinking.get("type") == "disabled":
            return 0
        if type(budget := thinking.get("budget_tokens")) is int:
            return max(0, budget)
    own = request.echoed.get(OWN)
    if type(own) is dict:
        config = (own.get("generationConfig") or {}).get("thinkingConfig") or {}
        if type(budget := config.get("thinkingBudget")) is int and budget >= 0:
            return budget
    return _EFFORTS.get(_effort(request), 0)


def _effort(request: CompletionRequest) -> str:
    body = request.body
    effort = body.get("reasoning_effort")
    for field in ("reasoning", "output_config"):
        if type(options := body.get(field)) is dict:
            effort = options.get("effort", effort)
    if type(effort) is str:
        return effort
    thinking = body.get("thinking")
    adaptive = type(thinking) is dict and thinking.get("type") == "adaptive"
    return "high" if adaptive else ""
