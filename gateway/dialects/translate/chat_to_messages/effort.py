"""Converts OpenAI's reasoning effort to Anthropic's thinking options. Drops parameters that cannot be combined with
thinking."""

from __future__ import annotations

from typing import Any

from gateway.dialects.anthropic_messages.models import Abilities
from gateway.dialects.translate.chat_to_messages.offer import FORCED
from gateway.errors import BadRequest

LEAST_BUDGET = 1024
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096, "xhigh": 8192, "max": 16384}
"""Reasoning effort → thinking budget in tokens, for models that need a budget."""
_THINKING = ("thinking", "redacted_thinking")
_HIGHEST_TEMPERATURE = 1.0
_LEAST_TOP_P = 0.95
"""Minimum `top_p` that Anthropic accepts together with thinking."""


def reason(body: dict[str, Any], translated: dict[str, Any], can: Abilities, limit: int | None) -> None:
    """Add thinking options to `translated` if `reasoning_effort` in `body` requires them. `can`: parameters that the
    model accepts. `limit`: the output limit in tokens; None: no limit. Raises BadRequest for an unknown effort."""
    effort = body.get("reasoning_effort")
    if effort is None or effort == "none":
        return
    if effort not in _BUDGETS:
        known = ", ".join(_BUDGETS)
        raise BadRequest(f"reasoning_effort must be one of none, {known}.", param="reasoning_effort")
    if not can.budget:
        word = {"minimal": "low", "xhigh": can.highest}.get(effort, effort)
        translated["output_config"] = {"effort": word, **translated.get("output_config", {})}
    if "thinking" in translated or translated.get("tool_choice", {}).get("type") in FORCED:
        return
    if can.adaptive:  # by default, Anthropic does not send the thinking, so the display is set
        translated["thinking"] = {"type": "adaptive", "display": "summarized"}
    elif can.budget and not _lacks_thinking(translated["messages"]):
        _think(translated, _BUDGETS[effort], can, limit)


def _think(translated: dict[str, Any], budget: int, can: Abilities, limit: int | None) -> None:
    """Add a thinking budget of at most `budget` tokens. The budget is part of the output limit, so it is kept below the
    limit. `limit`: the output limit in tokens; None: a limit is added."""
    if limit is None:
        translated["max_tokens"] = budget + can.usual_output
    elif limit <= LEAST_BUDGET:
        return
    else:
        budget = min(budget, limit - 1)
    translated["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _lacks_thinking(turns: list[dict[str, Any]]) -> bool:
    """Whether thinking must be off, because the client did not send back the thinking before its last tool call.

    If the last turn has a tool result, Anthropic requires the thinking before the tool's call.
    """
    if len(turns) < 2 or "tool_result" not in _kinds(turns[-1]):
        return False
    before = _kinds(turns[-2])
    return not before or before[0] not in _THINKING


def _kinds(turn: dict[str, Any]) -> list[str]:
    return [block["type"] for block in turn["content"]] if type(turn["content"]) is list else []


def sample(body: dict[str, Any], translated: dict[str, Any], can: Abilities) -> None:
    """Add `temperature`, `top_p` and `top_k`, as far as the model accepts them. Raises BadRequest for a value that is
    no number.

    Values that the model does not accept are dropped, so that an application that always sends them does not fail.
    """
    temperature, top_p, top_k = (_number(body, name) for name in ("temperature", "top_p", "top_k"))
    if not can.sampling:
        return
    if translated.get("thinking", {}).get("type", "disabled") != "disabled":
        temperature = top_k = None
        top_p = top_p if top_p is not None and top_p >= _LEAST_TOP_P else None
    elif not can.both and temperature is not None and top_p is not None:
        temperature, top_p = (None, top_p) if temperature == _HIGHEST_TEMPERATURE else (temperature, None)
    if temperature is not None:
        temperature = min(temperature, _HIGHEST_TEMPERATURE)
    chosen = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
    translated |= {name: value for name, value in chosen.items() if value is not None}


def _number(body: dict[str, Any], name: str) -> float | None:
    value: float | None = body.get(name)
    if value is None or type(value) in (int, float):
        return value
    raise BadRequest(f"{name} must be a number.", param=name)
