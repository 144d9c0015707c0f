"""Compares two request bodies of one session, and finds the first difference that a provider's prompt cache sees."""

from __future__ import annotations

import re
from typing import Any

_TIME = re.compile(r"\d\d:\d\d|\d{4}-\d\d-\d\d|\d{10,}")
"""Matches times, dates and numbers of seconds."""
_AROUND = 30
"""Number of characters that are shown on each side of a difference."""
_MARK = "cache_control"


def first_difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """A sentence about the first part of `before` that is different in `now`. Empty if `now` repeats all of
    `before`.

    The order is tools, system prompt, messages. Cache marks are ignored.
    """
    return (
        _tools(_unmarked(before.get("tools") or []), _unmarked(now.get("tools") or []))
        or _text("system prompt", _joined(before.get("system")), _joined(now.get("system")))
        or _messages(before.get("messages") or [], now.get("messages") or [])
    )


def _tools(before: list[Any], now: list[Any]) -> str:
    if before == now:
        return ""
    names, new_names = [_name(each) for each in before], [_name(each) for each in now]
    if names != new_names and sorted(names) == sorted(new_names):
        return "The tools are in another order."
    if gone := [name for name in names if name not in new_names]:
        return f"The tool {gone[0]} is missing."
    if added := [name for name in new_names if name not in names]:
        return f"The tool {added[0]} is new."
    changed = next((name for name, old, new in zip(names, before, now, strict=False) if old != new), names[0])
    return f"The definition of the tool {changed} changed."


def _name(tool: Any) -> str:
    function = tool.get("function") if type(tool) is dict else None
    holder = function if type(function) is dict else tool
    return str(holder.get("name", "")) if type(holder) is dict else ""


def _text(what: str, before: str, now: str) -> str:
    if before == now:
        return ""
    at = next((at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now)))
    old, new = (text[max(0, at - _AROUND) : at + _AROUND] for text in (before, now))
    kind = ", where it has a time or a date" if _TIME.search(old) and _TIME.search(new) else ""
    return f"The {what} changed after {at} characters{kind}: {old!r} became {new!r}."


def _messages(before: list[Any], now: list[Any]) -> str:
    if len(now) < len(before):
        return f"The history has {len(now)} messages instead of {len(before)}: it was shortened."
    for place, (old, new) in enumerate(zip(before, now, strict=False)):
        if _unmarked(old) == _unmarked(new):
            continue
        texts = [_joined(each.get("content")) if type(each) is dict else "" for each in (old, new)]
        role = old.get("role", "") if type(old) is dict else ""
        return _text(f"message {place} ({role})", *texts) or f"Message {place} ({role}) changed its form."
    return ""


def _joined(content: Any) -> str:
    if type(content) is str:
        return content
    parts = content if type(content) is list else []
    return "\n".join(str(part.get("text") or part.get("content") or "") for part in parts if type(part) is dict)


def _unmarked(value: Any) -> Any:
    if type(value) is list:
        return [_unmarked(each) for each in value]
    if type(value) is dict:
        return {name: _unmarked(each) for name, each in value.items() if name != _MARK}
    return value
