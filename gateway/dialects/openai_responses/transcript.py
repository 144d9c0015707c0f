"""Stores the bytes of a Responses stream, and parses them only on demand."""

from __future__ import annotations

import re

import orjson

_FOLD_BYTES = 64 * 1024
"""Bytes stored before they are read, so that a long stream needs little memory."""
_BEGINNING = 64 * 2**10
"""Number of characters that are kept of a longer text."""

_KEY = b'"delta":'
DELTA = re.compile(rb'"delta":[ \t]*"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
"""Matches a piece of text in any delta event. Inside a JSON string the quotes would be escaped."""


class ResponsesTranscript:
    """Stores whole events, and the names of output items and tools that were read from some of them."""

    def __init__(self) -> None:
        self.chunks = 0
        """Events with a delta (about one token each), plus the first event."""
        self.unreadable = 0
        self.last = b""
        """The block stored last."""
        self._kept: list[bytes | str] = []
        self._held = 0
        self._texts: list[str] = []
        self._length = 0
        self._characters = 0

    def add(self, block: bytes) -> None:
        """Store a block of whole events."""
        self.chunks += block.count(_KEY)
        self._kept.append(block)
        self.last = block
        self._held += len(block)
        if self._held > _FOLD_BYTES:
            self._fold()

    def add_text(self, text: str) -> None:
        """Store text from an event without a delta."""
        self._kept.append(text)

    def _fold(self) -> None:
        for kept in self._kept:
            if type(kept) is str:
                self._keep(kept)
            else:
                self._keep(self._text(kept))
        self._kept.clear()
        self._held = 0

    def _text(self, block: bytes | str) -> str:
        """The text of all deltas in a block. The pieces are joined before they are decoded."""
        assert isinstance(block, bytes)
        try:
            text: str = orjson.loads(b'"%b"' % b"".join(DELTA.findall(block)))
        except orjson.JSONDecodeError:
            self.unreadable += 1
            return ""
        return text

    def _keep(self, text: str) -> None:
        self._characters += len(text)
        if text and self._length < _BEGINNING:
            self._texts.append(text[: _BEGINNING - self._length])
            self._length += len(text)

    def text(self) -> str:
        """Reasoning, content, refusals, tool names and arguments in their original order. For a long text, only the
        beginning."""
        self._fold()
        return "".join(self._texts)

    @property
    def characters(self) -> int:
        self._fold()
        return self._characters
