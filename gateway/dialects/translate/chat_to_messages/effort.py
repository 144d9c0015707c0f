"""Writes OpenAI's reasoning effort as Anthropic's thinking, and drops parameters that it excludes."""

from __future__ import annotations

from typing import Any

from gateway.dialects.anthropic_messages.models import Abilities
from gateway.dialects.translate.chat_to_messages.offer import FORCED
from gateway.errors import BadRequest

LEAST_BUDGET = 1024
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096, "xhigh": 8192, "max": 16384}
"""Tokens, for models that want to be told how many."""
_THOUGHTS = ("thinking", "redacted_thinking")
_HIGHEST_TEMPERATURE = 1.0
_LEAST_TOP_P = 0.95
"""While it thinks."""


def reason(body: dict[str, Any], said: dict[str, Any], can: Abilities, limit: int | None) -> None:
    """Add to the request `said` what `reasoning_effort` asks for. `limit`: tokens that the answer must not exceed.

    `thinking` given by the client in Anthropic's own words stands as it is. Raises BadRequest for an unknown effort.
    """
    effort = body.get("reasoning_effort")
    if effort is None or effort == "none":
        return
    if effort not in _BUDGETS:
        known = ", ".join(_BUDGETS)
        raise BadRequest(f"reasoning_effort must be one of none, {known}.", param="reasoning_effort")
    if not can.budget:
        word = {"minimal": "low", "xhigh": can.highest}.get(effort, effort)
        said["output_config"] = {"effort": word, **said.get("output_config", {})}
    if "thinking" in said or said.get("tool_choice", {}).get("type") in FORCED:
        return
    if can.adaptive:  # Left to itself it thinks without showing what.
        said["thinking"] = {"type": "adaptive", "display": "summarized"}
    elif can.budget and not _thoughts_missing(said["messages"]):
        _think(said, _BUDGETS[effort], can, limit)


def _think(said: dict[str, Any], budget: int, can: Abilities, limit: int | None) -> None:
    """The budget is a part of the answer's tokens, and less than all of them."""
    if limit is None:
        said["max_tokens"] = budget + can.usual_output
    elif limit <= LEAST_BUDGET:
        return
    else:
        budget = min(budget, limit - 1)
    said["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _thoughts_missing(turns: list[dict[str, Any]]) -> bool:
    """Is it in the middle of using tools, and the thoughts before the last calls did not come back?

    Then it may not think on: its turn must begin with the thoughts that it had, and most of OpenAI's clients drop them.
    """
    if len(turns) < 2 or "tool_result" not in _kinds(turns[-1]):
        return False
    before = _kinds(turns[-2])
    return not before or before[0] not in _THOUGHTS


def _kinds(turn: dict[str, Any]) -> list[str]:
    return [block["type"] for block in turn["content"]] if type(turn["content"]) is list else []


def sample(body: dict[str, Any], said: dict[str, Any], can: Abilities) -> None:
    """Add `temperature`, `top_p` and `top_k` as far as the model takes them. Raises BadRequest for what is no number.

    Later models take none, and no model does while it thinks: what an application always sends must not stop it there.
    """
    temperature, top_p, top_k = (_number(body, name) for name in ("temperature", "top_p", "top_k"))
    if not can.sampling:
        return
    if said.get("thinking", {}).get("type", "disabled") != "disabled":
        temperature = top_k = None
        top_p = top_p if top_p is not None and top_p >= _LEAST_TOP_P else None
    elif not can.both and temperature is not None and top_p is not None:
        temperature, top_p = (None, top_p) if temperature == _HIGHEST_TEMPERATURE else (temperature, None)
    if temperature is not None:
        temperature = min(temperature, _HIGHEST_TEMPERATURE)
    chosen = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
    said |= {name: value for name, value in chosen.items() if value is not None}


def _number(body: dict[str, Any], name: str) -> float | None:
    value: float | None = body.get(name)
    if value is None or type(value) in (int, float):
        return value
    raise BadRequest(f"{name} must be a number.", param=name)
