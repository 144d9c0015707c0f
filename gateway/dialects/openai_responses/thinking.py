"""Packs another vendor's signed thinking into a reasoning item's `encrypted_content`.

The client returns it with its next request, as it does with OpenAI's own content. Then the backend gets back the blocks
that it signed.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson

_MARK = "thinking-blocks-1:"
"""Prefix that distinguishes content packed by the gateway from content that OpenAI encrypted."""


def pack(blocks: list[dict[str, Any]]) -> str:
    """Pack chat's `thinking_blocks` into one opaque string."""
    return _MARK + base64.b64encode(orjson.dumps(blocks)).decode()


def unpack(content: object) -> list[dict[str, Any]]:
    """The blocks in an `encrypted_content`; empty if the gateway did not write it."""
    if type(content) is not str or not content.startswith(_MARK):
        return []
    try:
        blocks = orjson.loads(base64.b64decode(content[len(_MARK) :], validate=True))
    except (binascii.Error, orjson.JSONDecodeError):
        return []
    return [block for block in blocks if _is_valid(block)] if type(blocks) is list else []


def _is_valid(block: object) -> bool:
    """Whether a block has the expected fields; the client may have changed it."""
    if type(block) is not dict:
        return False
    names = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}.get(str(block.get("type")), ())
    return bool(names) and all(type(block.get(name)) is str for name in names)
