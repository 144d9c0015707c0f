"""What a stream has said so far: kept as it came, parsed only when somebody asks."""

from __future__ import annotations

from gateway.dialects.chat_assembly import Assembly

_FOLD_BYTES = 64 * 1024
"""Raw events kept before they are parsed into what they say, so that a long stream needs little memory."""


class Transcript:
    """Whole events in OpenAI's chat dialect."""

    def __init__(self) -> None:
        self.chunks = 0
        """Events with a delta, about one token each."""
        self._blocks: list[bytes] = []
        self._held = 0
        self._assembly = Assembly()

    def keep(self, block: bytes) -> None:
        self.chunks += block.count(b'"delta"')
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
