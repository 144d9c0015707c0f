"""Keeps the bytes of a stream; parses them only on demand."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from gateway.dialects.openai_chat.assembly import Assembly
from gateway.dialects.openai_chat.usage import CITATION
from gateway.dialects.streams import sse
from gateway.dialects.streams.text_run import RunText, TextRun

_FOLD_BYTES = 64 * 1024
"""Kept before it is understood, so that a long stream needs little memory."""
_PARSED_WEIGHT = 4
"""A parsed event takes so many times the room of its bytes."""
_TRIES = 4
"""Runs begun in a row that no event followed, before most events are no longer tried."""
_PAUSE = 64
"""Events until the next one is tried."""


class _Parsed(NamedTuple):
    chunk: dict[str, Any]
    size: int


class Transcript:
    """Whole events in OpenAI's chat dialect. Of those that form a run nothing but the text is kept."""

    mark = b'"delta"'
    """What every event has once for each piece of the answer."""

    def __init__(self) -> None:
        self.chunks = 0
        """Events with a delta, about one token each."""
        self.silent = 0
        """Of these, those known to say nothing: most streams begin with who speaks, and end with why they do."""
        self.first: dict[str, Any] | None = None
        """The first event that was parsed."""
        self.cites = False
        """Does it name sources on the web?"""
        self._run: TextRun | None = None
        self._alone = 0
        self._pause = 0
        self._kept: list[bytes | RunText | _Parsed] = []
        self._held = 0
        self._assembly = self._new_assembly()

    def _new_assembly(self) -> Assembly:
        return Assembly()

    def _run_after(self, event: bytes, chunk: Any) -> TextRun | None:
        return TextRun.after(event, chunk)

    def says(self, chunk: dict[str, Any]) -> bool:
        """Is there anything in a chunk but who speaks and why it ended?"""
        choices = chunk.get("choices")
        for choice in choices if type(choices) is list else ():
            delta = choice.get("delta") if type(choice) is dict else None
            if type(delta) is dict:
                for key, value in delta.items():
                    if value and key != "role":
                        return True
        return False

    @property
    def irregular(self) -> bool:
        """Do its events differ in more than text? Then a whole block is added as cheaply as one of them."""
        return self._pause > 0

    def take(self, block: bytes, at: int = 0) -> int:
        """Keep the events from `at` on that are more of the same text; returns where the first other one begins."""
        if self._run is None:
            return at
        end, events = self._run.take(block, at)
        if events:
            self.chunks += events
            self._alone = 0
            self._hold(end - at)
        return end

    def add(self, block: bytes) -> None:
        """Keep one event, or a block of them, that `take` did not take."""
        deltas = block.count(self.mark)
        if block.find(CITATION) >= 0:
            self.cites = True
        if deltas and not self._pause:
            self._begin(block)
        else:
            self._end_run()
            self._kept.append(block)
            self._hold(len(block))
        self._pause = max(0, self._pause - deltas)
        self.chunks += deltas

    def add_parsed(self, event: bytes, chunk: dict[str, Any]) -> None:
        """Keep an event that was read for another reason; those to come will not be like it."""
        deltas = event.count(self.mark)
        if self.first is None:
            self.first = chunk
        if event.find(CITATION) >= 0:
            self.cites = True
        if deltas and not self.chunks and not self.says(chunk):
            self.silent += 1
        self.chunks += deltas
        self._end_run()
        self._kept.append(_Parsed(chunk, len(event)))
        self._hold(len(event) * _PARSED_WEIGHT)

    def keep(self, block: bytes) -> None:
        """Keep whatever events there are."""
        at, returns = 0, b"\r" in block
        while (at := self.take(block, at)) < len(block):
            end = len(block) if self.irregular else sse.next_boundary(block, at, returns)
            self.add(block[at:end])
            at = end

    def _begin(self, event: bytes) -> None:
        """The events to come may be like this one."""
        self._end_run()
        try:
            chunk = orjson.loads(sse.payload(event))
            self._run = self._run_after(event, chunk)
        except ValueError:
            chunk = self._run = None
        if type(chunk) is dict:
            if self.first is None:
                self.first = chunk
            if not self.chunks and not self.says(chunk):
                self.silent += 1
            self._kept.append(_Parsed(chunk, len(event)))
        else:
            self._kept.append(event)
        self._hold(len(event) * _PARSED_WEIGHT)
        self._alone += 1
        if self._alone > _TRIES:
            self._pause = _PAUSE

    def _end_run(self) -> None:
        if self._run is not None and (said := self._run.said()):
            self._kept.append(said)

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > _FOLD_BYTES:
            self.read()

    def read(self) -> Assembly:
        """Everything kept so far, understood."""
        self._end_run()
        for kept in self._kept:
            if type(kept) is bytes:
                self._assembly.add(kept)
            elif type(kept) is RunText:
                self._assembly.say(*kept)
            else:
                self._assembly.add_parsed(*kept)
        self._kept.clear()
        self._held = 0
        return self._assembly
