"""Removes fields of messages and tools that only Anthropic's or Google's API reads. Chat clients may send these fields,
and OpenAI's API rejects them."""

from __future__ import annotations

from typing import Any

from gateway.domain.request import CompletionRequest

_NOT_CHAT = frozenset({"cache_control", "thinking_blocks"})
_SIGNATURES = "extra_content"


def plain_chat(body: dict[str, Any], *, signatures: bool = True) -> dict[str, Any]:
    """Return `body` without the fields of messages, their parts and tools that only Anthropic's API reads.

    `signatures`: whether Google's signatures of calls are kept.
    """
    found = dict(body)
    names = _NOT_CHAT if signatures else _NOT_CHAT | {_SIGNATURES}
    for field in ("messages", "tools"):
        if type(body.get(field)) is list:
            found[field] = [_without(item, names) for item in body[field]]
    return found


def _without(item: Any, names: frozenset[str]) -> Any:
    if type(item) is not dict:
        return item
    kept = {name: value for name, value in item.items() if name not in names}
    for field in ("content", "tool_calls"):
        if type(inner := kept.get(field)) is list:
            kept[field] = [_without(part, names) for part in inner]
    return kept


def may_have_foreign_fields(request: CompletionRequest) -> bool:
    """Whether the body may contain a field that only Anthropic's or Google's API reads."""
    return any(map(request.contains, (b'"cache_control"', b'"thinking_blocks"', b'"extra_content"')))
