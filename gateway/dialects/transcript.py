"""What a stream has said so far: kept as it came, parsed only when somebody asks."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects import sse
from gateway.dialects.chat_assembly import Assembly

_FOLD_BYTES = 64 * 1024
"""Raw events kept before they are parsed into what they say, so that a long stream needs little memory."""


class Transcript:
    """Whole events in OpenAI's chat dialect."""

    def __init__(self) -> None:
        self.chunks = 0
        """Events with a delta, about one token each."""
        self.silent = 0
        """Of these, those known to say nothing: most streams begin with who speaks, and end with why they do."""
        self._blocks: list[bytes] = []
        self._held = 0
        self._assembly = Assembly()

    def keep(self, block: bytes) -> None:
        deltas = block.count(b'"delta"')
        if deltas and not self.chunks:
            self.silent += _begins_silently(block)
        self.chunks += deltas
        self._blocks.append(block)
        self._held += len(block)
        if self._held > _FOLD_BYTES:
            self.read()

    def read(self) -> Assembly:
        """Everything kept so far, understood."""
        if self._blocks:
            self._assembly.add(b"".join(self._blocks))
            self._blocks.clear()
            self._held = 0
        return self._assembly


def says(chunk: dict[str, Any]) -> bool:
    """Is there anything in a chunk but who speaks and why it ended?"""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") if type(choice) is dict else None
        if type(delta) is dict and any(value for key, value in delta.items() if key != "role"):
            return True
    return False


def _begins_silently(block: bytes) -> bool:
    """Of its first event; one with a finish is whoever's reads it."""
    first = next(event for event in sse.events(block) if b'"delta"' in event)
    try:
        chunk = orjson.loads(sse.payload(first))
    except orjson.JSONDecodeError:
        return False
    return type(chunk) is dict and not says(chunk)
