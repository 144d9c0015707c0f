"""Parses chat chunks for a writer; a chunk that differs from the last one only in its text is not parsed again."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_chat.content_parts import flattened
from gateway.dialects.streams import sse
from gateway.dialects.streams.text_run import TextRun

_TRIES = 4
"""Runs begun in a row that no event followed, before no other is begun: then every event differs, by a random field."""

_EMPTY: dict[str, Any] = {}
_TEXT = (str, type(None))

Chunk = dict[str, Any]


class ChatChunks:
    """One stream's. A chunk is only good until the next one is asked for: it may be the same, with another text."""

    def __init__(self) -> None:
        self._before = self._after = b"\n\n\n"
        """What stands around the text of a run; of none, what no event begins with."""
        self._start = self._stop = 0
        self._chunk: Chunk = {}
        self._delta: dict[str, Any] = {}
        self._field = ""
        self._tries = _TRIES

    def again(self, event: bytes) -> Chunk | None:
        """The chunk in `event`, if that is all of it and more of the same text.

        Between the quotes is one JSON string if orjson takes it for one: of two events it would not be.
        """
        if not (event.startswith(self._before) and event.endswith(self._after)):
            return None
        try:
            self._delta[self._field] = orjson.loads(event[self._start : self._stop])
        except orjson.JSONDecodeError:
            return None
        self._tries = _TRIES
        return self._chunk

    def read(self, event: bytes) -> Chunk | None:
        """The chunk in `event`; None when it has no choices. Raises ValueError and AttributeError for other things."""
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
        """The events to come may be like this one."""
        if (run := TextRun.after(event, chunk)) is None:
            return
        self._tries -= 1
        self._before, self._after = run.head, run.tail
        self._start, self._stop = len(run.head) - 1, 1 - len(run.tail)
        self._chunk, self._field = chunk, run.field
        self._delta = chunk["choices"][0]["delta"]
