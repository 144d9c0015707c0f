"""Reads a response's usage, service tier and charged tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gateway.dialects.answers.usage import Fees, openai_usage, usage_with
from gateway.dialects.openai_chat.usage import tier_of
from gateway.domain.money.usage import Usage

_UNITS = {
    "web_search_call": "web_search",
    "code_interpreter_call": "code_execution",
    "file_search_call": "file_search",
    "image_generation_call": "image_generation",
}
"""Type of an output item → the unit that is charged for the item."""


def reported(response: dict[str, Any], tool_items: Iterable[Any] = ()) -> Usage | None:
    """The usage of a response; None if it contains no counts. `tool_items`: finished items of the provider's tools;
    used if the response has no items."""
    fees = fees_of(response.get("output")) or fees_of(tool_items)
    return openai_usage(response.get("usage"), tier=tier_of(response), fees=fees)


def so_far(response: dict[str, Any], tool_items: Iterable[Any]) -> Usage | None:
    """The known usage of an unfinished response; None if nothing is known. `tool_items`: finished items of the
    provider's tools."""
    tier, fees = tier_of(response), fees_of(tool_items)
    return usage_with(openai_usage(response.get("usage"), tier=tier, fees=fees), tier, fees)


def is_charged(item: Any) -> bool:
    """Whether the item is a use of a tool that is charged separately."""
    return type(item) is dict and type(kind := item.get("type")) is str and kind in _UNITS


def fees_of(output: Any) -> Fees:
    """The units charged for `output`, and their numbers. Opening a found page and reusing a container are free."""
    charged = [item for item in output if is_charged(item)] if isinstance(output, list | tuple) else ()
    if not charged:
        return ()
    units: Counter[str] = Counter()
    containers = set[str]()
    for item in charged:
        if item.get("status") not in ("completed", None):
            continue
        action, container = item.get("action"), item.get("container_id")
        if type(action) is dict and action.get("type") not in ("search", None):
            continue
        if type(container) is str:
            if container in containers:
                continue
            containers.add(container)
        units[_UNITS[item["type"]]] += 1
    return tuple(sorted(units.items()))
