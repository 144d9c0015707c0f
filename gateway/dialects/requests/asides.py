"""Marks messages that have strings beside text, calls and files: the model reads and the vendor bills them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from gateway.domain.attachment import FILE_PARTS, LABELS, MOST_LABEL

_OF_TEXTS = frozenset({"text", "cache_control", "prompt_cache_breakpoint"})


def has_asides(message: Mapping[str, Any], counted: Set[str]) -> bool:
    """Is there anything in `message` beside labels and what is `counted` by other means? Empty values are nothing."""
    for name in message.keys() - counted:
        value = message[name]
        if value and not (name in LABELS and type(value) is str and len(value) <= MOST_LABEL):
            return True
    return False


def in_parts(parts: Any, texts: Set[str], image_is: str) -> bool:
    """Has a content part anything beside text, unless it is an image or a file? `texts`: types of which the `text` is
    counted."""
    if type(parts) is not list:
        return False
    for part in parts:
        kind = part["type"]
        if has_asides(part, _OF_TEXTS) if kind in texts else kind != image_is and kind not in FILE_PARTS:
            return True
    return False
