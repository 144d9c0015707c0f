"""Converts answers whose `content` is a list of parts to chat's usual form. Mistral's reasoning models send such
lists."""

from __future__ import annotations

from typing import Any


def flattened(message: dict[str, Any]) -> dict[str, Any]:
    """Convert a message or delta: `content` to text or null, thinking to `reasoning_content`. Parts of other types are
    dropped. Raises TypeError for any other content."""
    content = message.get("content")
    if content is None or type(content) is str:
        return message
    if type(content) is not list:
        raise TypeError("content must be a text or a list of parts")
    thought = _joined(part.get("thinking") for part in content if _is(part, "thinking"))
    joined = {**message, "content": _joined(part.get("text") for part in content if _is(part, "text"))}
    if thought:
        joined["reasoning_content"] = thought
    return joined


def _is(part: object, kind: str) -> bool:
    return type(part) is dict and part.get("type") == kind


def _joined(texts: Any) -> str:
    """Join texts, and the texts of content parts, to one text."""
    joined = ""
    for text in texts:
        if type(text) is str:
            joined += text
        elif type(text) is list:
            joined += _joined(part.get("text") for part in text if _is(part, "text"))
    return joined
