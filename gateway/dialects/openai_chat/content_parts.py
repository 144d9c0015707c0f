"""Rewrites answers whose `content` is a list of parts (Mistral's reasoning models) to chat's usual form."""

from __future__ import annotations

from typing import Any


def flattened(message: dict[str, Any]) -> dict[str, Any]:
    """A message or delta whose `content` is text (or null), and its thinking `reasoning_content`.

    Parts of other kinds have no place in an answer and are left out; a message with text is returned as it is.
    Raises TypeError for content that is neither.
    """
    content = message.get("content")
    if content is None or type(content) is str:
        return message
    if type(content) is not list:
        raise TypeError("content must be a text or a list of parts")
    thought = _joined(part.get("thinking") for part in content if _is(part, "thinking"))
    said = {**message, "content": _joined(part.get("text") for part in content if _is(part, "text"))}
    if thought:
        said["reasoning_content"] = thought
    return said


def _is(part: object, kind: str) -> bool:
    return type(part) is dict and part.get("type") == kind


def _joined(texts: Any) -> str:
    """Texts, or lists of text parts, one after the other."""
    said = ""
    for text in texts:
        if type(text) is str:
            said += text
        elif type(text) is list:
            said += _joined(part.get("text") for part in text if _is(part, "text"))
    return said
