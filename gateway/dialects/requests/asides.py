"""Detects text in messages outside the usual fields. Such text must be counted, because models read it and vendors
charge for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from gateway.domain.attachment import FILE_PARTS, LABELS, MOST_LABEL

_OF_TEXTS = frozenset({"type", "text", "cache_control", "prompt_cache_breakpoint"})


def has_asides(message: Mapping[str, Any], counted: Set[str]) -> bool:
    """Whether `message` has text outside the fields in `counted`, which are counted already. Empty fields and short
    labels are ignored.
    """
    for name in message.keys() - counted:
        value = message[name]
        if value and not (name in LABELS and type(value) is str and len(value) <= MOST_LABEL):
            return True
    return False


def in_parts(parts: Any, texts: Set[str], image_is: str) -> bool:
    """Whether a content part has text outside the field `text`. `texts`: types of parts whose text is counted.
    `image_is`: type of image parts, which are ignored."""
    if type(parts) is not list:
        return False
    for part in parts:
        kind = part["type"]
        if has_asides(part, _OF_TEXTS) if kind in texts else kind != image_is and kind not in FILE_PARTS:
            return True
    return False
