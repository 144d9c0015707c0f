"""Carries another vendor's signed thinking as a reasoning item's `encrypted_content`.

The client hands it back with its next request, as it does with OpenAI's own, and the backend gets what it signed.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson

_MARK = "thinking-blocks-1:"
"""Tells ours from those that OpenAI encrypted."""


def pack(blocks: list[dict[str, Any]]) -> str:
    """`thinking_blocks` of the pivot as one opaque string."""
    return _MARK + base64.b64encode(orjson.dumps(blocks)).decode()


def unpack(content: object) -> list[dict[str, Any]]:
    """The blocks in an `encrypted_content`; none when the gateway did not write it."""
    if type(content) is not str or not content.startswith(_MARK):
        return []
    try:
        blocks = orjson.loads(base64.b64decode(content[len(_MARK) :], validate=True))
    except (binascii.Error, orjson.JSONDecodeError):
        return []
    return [block for block in blocks if _sound(block)] if type(blocks) is list else []


def _sound(block: object) -> bool:
    """A client may have written anything."""
    if type(block) is not dict:
        return False
    names = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}.get(str(block.get("type")), ())
    return bool(names) and all(type(block.get(name)) is str for name in names)
