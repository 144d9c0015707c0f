"""Stores the bytes of a Responses stream. The bytes are parsed only when their text is needed."""

from __future__ import annotations

import re

import orjson

from gateway.dialects.openai_chat.assembly import BEGINNING
from gateway.dialects.streams.event_reader import FOLD_BYTES
from gateway.dialects.streams.text_run import mended

_KEY = b'"delta":'
_QUOTE = b'"'
"""Written between blocks. A text that has no end in its block would otherwise end in another block."""
DELTA = re.compile(rb'"delta":[ \t]*"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
"""Matches the text in a delta event. The pattern cannot match inside a JSON string, because the quotes would be escaped
there."""


class ResponsesTranscript:
    """Stores whole events. For some events, it stores only the names of output items and tools."""

    def __init__(self) -> None:
        self.chunks = 0
        """Number of events with a delta (about one event per token), plus the first event."""
        self.last = b""
        """The block of events that was stored last."""
        self._kept: list[bytes] = []
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
        if self._held > FOLD_BYTES:
            self._fold()

    def add_text(self, text: str) -> None:
        """Store text that comes from an event without a delta."""
        self._kept.append(_KEY + orjson.dumps(text))

    def _fold(self) -> None:
        kept, self._kept, self._held = self._kept, [], 0
        try:
            self._keep(_text(_QUOTE.join(kept)))
        except orjson.JSONDecodeError:
            for block in kept:
                try:
                    self._keep(_text(block))
                except orjson.JSONDecodeError:
                    self._keep(_text(mended(block)))

    def _keep(self, text: str) -> None:
        self._characters += len(text)
        if text and self._length < BEGINNING:
            self._texts.append(text[: BEGINNING - self._length])
            self._length += len(text)

    def text(self) -> str:
        """The text so far: reasoning, content, refusals, tool names and arguments, in their original order. If the text
        is long, only its beginning."""
        self._fold()
        return "".join(self._texts)

    @property
    def characters(self) -> int:
        self._fold()
        return self._characters


def _text(block: bytes) -> str:
    """The text of all deltas in a block. All texts are joined first and decoded together. Raises JSONDecodeError."""
    text: str = orjson.loads(b'"%b"' % b"".join(DELTA.findall(block)))
    return text
