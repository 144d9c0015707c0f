"""Parses the chat chunks of a stream for a writer. A chunk that differs from the previous chunk only in its text is not
parsed."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_chat.content_parts import flattened
from gateway.dialects.streams import sse
from gateway.dialects.streams.text_run import AlikeEvents, TextRun

_TRIES = 4
"""Maximum number of consecutive runs that consist of a single event. After them, no further run is begun, because this
stream seems to have a random field in every event. A run is a sequence of events that differ only in their text."""

_EMPTY: dict[str, Any] = {}
_TEXT = (str, type(None))

Chunk = dict[str, Any]


class ChatChunks:
    """Parses the chunks of one stream. A returned chunk is valid only until the next call of a method."""

    def __init__(self) -> None:
        self._alike = AlikeEvents(b"\n\n\n", b"\n\n\n")
        """Finds events that differ from the last parsed event only in their text. Before the first event, it finds
        none."""
        self._start = self._stop = 0
        self._chunk: Chunk = {}
        self._delta: dict[str, Any] = {}
        self._field = ""
        self._content = False
        """Whether the events that `_alike` finds contain content of the first choice."""
        self._repeats = False
        """Whether the previous event has the form of `_alike` and contains content of the first choice."""
        self._tries = _TRIES

    def again(self, event: bytes) -> Chunk | None:
        """The chunk in `event`. None if `event` differs from the previous event in more than its text."""
        if not (event.startswith(self._alike.before) and event.endswith(self._alike.after)):
            return None
        try:
            self._delta[self._field] = orjson.loads(event[self._start : self._stop])
        except orjson.JSONDecodeError:
            return None
        self._repeats = self._content
        self._tries = _TRIES
        return self._chunk

    def texts(self, block: bytes, at: int) -> tuple[int, list[str]]:
        """Read successive events, from position `at`, that differ only in their content. Returns the position after
        them and their contents.

        Returns (`at`, []) if there are no such events, or if one of them must be parsed alone.
        """
        if not self._repeats:
            return at, []
        end, _, texts = self._alike.take(block, at)
        return end, texts

    def with_text(self, text: str) -> Chunk:
        """The previous chunk with another content."""
        self._delta[self._field] = text
        return self._chunk

    def read(self, event: bytes) -> Chunk | None:
        """The chunk in `event`; None if the event has no choices. Raises ValueError or AttributeError if the event is
        not a chunk."""
        self._repeats = False
        if (same := self.again(event)) is not None:
            return same
        data = sse.payload(event)
        if not data or data == b"[DONE]":
            return None
        chunk: Chunk = orjson.loads(data)
        if not chunk.get("choices"):
            return None
        for choice in chunk["choices"]:
            if type((choice.get("delta") or _EMPTY).get("content")) not in _TEXT:
                choice["delta"] = flattened(choice["delta"])
        if self._tries:
            self._begin(event, chunk)
        return chunk

    def _begin(self, event: bytes, chunk: Chunk) -> None:
        """Prepare `again` for later events that differ from `event` only in their text. `chunk`: `event` after
        parsing.
        """
        if (run := TextRun.after(event, chunk)) is None or run.field == "arguments":
            return
        self._tries -= 1
        self._alike = AlikeEvents(run.head, run.tail)
        self._start, self._stop = len(run.head) - 1, 1 - len(run.tail)
        self._chunk, self._delta, self._field = chunk, run.holder, run.field
        self._repeats = self._content = run.field == "content" and not chunk["choices"][0].get("index")
