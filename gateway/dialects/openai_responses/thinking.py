"""Packs the signed thinking of another vendor into the field `encrypted_content` of a reasoning item.

The client returns this field with its next request, as it does with OpenAI's own content. Then the gateway sends the
signed blocks back to the backend that signed them.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson

SEALED = "encrypted_content"
_MARK = "thinking-blocks-1:"
"""The prefix of content that the gateway has packed. Content that OpenAI has encrypted does not have this prefix."""


def pack(blocks: list[dict[str, Any]]) -> str:
    """Pack chat's `thinking_blocks` into one opaque string."""
    return _MARK + base64.b64encode(orjson.dumps(blocks)).decode()


def unpack(content: object) -> list[dict[str, Any]]:
    """The thinking blocks in an `encrypted_content`. Empty if the gateway did not pack this content."""
    if type(content) is not str or not content.startswith(_MARK):
        return []
    try:
        blocks = orjson.loads(base64.b64decode(content[len(_MARK) :], validate=True))
    except (binascii.Error, orjson.JSONDecodeError):
        return []
    return [block for block in blocks if _is_valid(block)] if type(blocks) is list else []


def _is_valid(block: object) -> bool:
    """Whether a block has the expected fields. The check is needed because the client may have changed the block."""
    if type(block) is not dict:
        return False
    names = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}.get(str(block.get("type")), ())
    return bool(names) and all(type(block.get(name)) is str for name in names)
