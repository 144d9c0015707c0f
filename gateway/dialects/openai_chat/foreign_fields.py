"""Removes fields of messages and tools that only Anthropic's API reads. Chat clients may send these fields, and
OpenAI's API rejects them."""

from __future__ import annotations

from typing import Any

from gateway.domain.request import CompletionRequest

_NOT_CHAT = frozenset({"cache_control", "thinking_blocks"})


def plain_chat(body: dict[str, Any]) -> dict[str, Any]:
    """`body` without the fields that only Anthropic's API reads. They are removed from the messages, the parts of
    messages, and the tools."""
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
    """Whether the body may contain a field that only Anthropic's API reads."""
    return request.contains(b'"cache_control"') or request.contains(b'"thinking_blocks"')
