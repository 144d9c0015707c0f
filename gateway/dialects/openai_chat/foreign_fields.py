"""Removes message and tool fields that only Anthropic's API reads. Chat clients may send them; OpenAI's API rejects
them."""

from __future__ import annotations

from typing import Any

from gateway.domain.request import CompletionRequest

_NOT_CHAT = frozenset({"cache_control", "thinking_blocks"})


def plain_chat(body: dict[str, Any]) -> dict[str, Any]:
    """`body` without these fields in its messages, their parts, and its tools."""
    found = dict(body)
    for field in ("messages", "tools"):
        if type(body.get(field)) is list:
            found[field] = [_without(item) for item in body[field]]
    return found


def _without(item: Any) -> Any:
    if type(item) is not dict:
        return item
    kept = {name: value for name, value in item.items() if name not in _NOT_CHAT}
    if type(content := kept.get("content")) is list:
        kept["content"] = [_without(part) for part in content]
    return kept


def may_have_foreign_fields(request: CompletionRequest) -> bool:
    """Whether the body may contain one of these fields."""
    return request.contains(b'"cache_control"') or request.contains(b'"thinking_blocks"')
