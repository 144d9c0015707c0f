"""Base of readers that make chat chunks from events without names. The data of each event is one JSON object."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import orjson

from gateway.dialects.openai_chat.reader import ChunkMaker, around_text
from gateway.dialects.streams import sse
from gateway.dialects.streams.text_run import events_with


class ObjectReader(ChunkMaker):
    """Parses together all events that arrived in one piece of the stream. If successive events contain only text, their
    chunks are also written together."""

    @abstractmethod
    def _take(self, parsed: Any) -> bytes:
        """Convert the data of an event to chunks. Returns nothing after the end or a failure of the stream."""

    @abstractmethod
    def _texts(self, values: list[dict[str, Any]], start: int) -> list[str]:
        """Read successive events that contain only a piece of the answer's text, from index `start` on. Returns their
        pieces of text.

        Stops at the first other event, and at an event with an empty text. `values`: the data of all events that
        arrived together.
        """

    @abstractmethod
    def _misread(self) -> bytes:
        """Store the failure for an event that could not be parsed. Returns nothing."""

    def feed(self, data: bytes) -> bytes:
        return self._feed(data)

    def _read(self, event: bytes) -> bytes:
        data = sse.payload(event)
        if not data or self.ended or self._failure:
            return b""
        try:
            return self._take(orjson.loads(data))
        except orjson.JSONDecodeError:
            return self._misread()

    def _read_many(self, block: bytes, at: int) -> tuple[int, bytes]:
        values = None if at or self.ended or self._failure else sse.objects(block)
        if values is None:
            return at, b""
        pieces: list[bytes] = []
        place = 0
        while place < len(values) and not self.ended:
            if self._begun and not (self.finish or self._failure) and (texts := self._texts(values, place)):
                pieces.append(self._contents(texts))
                place += len(texts)
            else:
                pieces.append(self._take(values[place]))
                place += 1
        return len(block), b"".join(pieces)

    def _contents(self, texts: list[str]) -> bytes:
        """A chunk for each of `texts`. The chunks contain only content, and have the same form as the chunks of
        `_chunk`."""
        before, after = around_text(self._shared)
        return events_with(before + b'"', texts, b'"' + after)
