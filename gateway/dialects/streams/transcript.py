"""Stores the bytes of a chat stream. The bytes are parsed only when the answer is needed."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from gateway.dialects.openai_chat.assembly import Assembly
from gateway.dialects.openai_chat.usage import CITATION
from gateway.dialects.streams import sse
from gateway.dialects.streams.event_reader import FOLD_BYTES
from gateway.dialects.streams.text_run import RunText, TextRun

_PARSED_WEIGHT = 4
"""Bytes of memory of a parsed event, divided by the event's bytes."""
_TRIES = 4
"""Number of consecutive runs of a single event. After this number, a new run is begun only at every `_PAUSE`th event. A
run is a sequence of events that differ only in their text."""
_PAUSE = 64
"""Number of events after which a new run is begun in a stream of which many runs had a single event."""


class _Parsed(NamedTuple):
    chunk: dict[str, Any]
    size: int


class Transcript:
    """Stores whole events in OpenAI's chat dialect. If events differ only in their text, only the texts are stored.

    `keep` stores any block: it calls `take` for events of the present run, and `add` for others. A reader that parses
    events itself calls `take` and `add_parsed`.
    """

    mark = b'"delta"'
    """A text that occurs in an event once for each piece of the answer."""

    chunks = 0
    """Number of events with a delta so far. This is about the number of tokens."""
    silent = 0
    """Number of events in `chunks` without text. Most streams begin with an event with the role and end with an event
    with the finish reason."""
    first: dict[str, Any] | None = None
    """The first parsed event with choices."""
    cites = False
    """Whether the answer cites web sources."""
    most_characters = 0
    """An upper bound of the number of characters of the answer's text: the bytes of the texts, or of whole events if
    their texts were not looked for."""
    pause = 0
    """Number of events before a new run may begin. Not 0 if the last events differed in more than their text; then
    adding events one by one saves nothing."""
    _run: TextRun | None = None
    _alone = 0
    """Number of consecutive runs of a single event."""
    _held = 0
    """Bytes of memory of the stored events."""

    def __init__(self) -> None:
        self._kept: list[bytes | RunText | _Parsed] = []
        self._assembly = self._new_assembly()

    def _new_assembly(self) -> Assembly:
        """Legacy completions override this method and the next one."""
        return Assembly()

    def _run_after(self, event: bytes, chunk: dict[str, Any]) -> TextRun | None:
        return TextRun.after(event, chunk)

    def says(self, chunk: dict[str, Any]) -> bool:
        """Whether `chunk` contains anything besides the role and the finish reason."""
        choices = chunk.get("choices")
        for choice in choices if type(choices) is list else ():
            delta = choice.get("delta") if type(choice) is dict else None
            if type(delta) is dict:
                for key, value in delta.items():
                    if value and key != "role":
                        return True
        return False

    def take(self, block: bytes, at: int = 0) -> int:
        """Store the events from position `at` that differ from the event before them only in their text. Returns the
        position of the first other event."""
        run = self._run
        if run is None:
            return at
        end, events = run.take(block, at)
        if events:
            self.chunks += events
            self.most_characters += end - at - events * run.frame
            self._alone = 0
            self._held += end - at
            if self._held > FOLD_BYTES:
                self.read()
        return end

    def add(self, block: bytes) -> None:
        """Store one event, or one block of events, that `take` did not store."""
        try:  # `find` is faster than `in`
            chunk = None if self.pause or block.find(self.mark) < 0 else orjson.loads(sse.payload(block))
        except orjson.JSONDecodeError:
            chunk = None
        if type(chunk) is dict:
            self.add_parsed(block, chunk)
        else:
            deltas = block.count(self.mark)
            self.pause = max(0, self.pause - deltas)
            self._add(block, len(block), deltas, block)

    def add_parsed(self, event: bytes, chunk: dict[str, Any]) -> bool:
        """Store an event that was already parsed to `chunk`. Returns whether it begins a run: then it contains nothing
        but a text, so the caller need not look for a usage or a finish reason."""
        deltas, says, run = event.count(self.mark), self.says(chunk), None
        if self.first is None and chunk.get("choices"):
            self.first = chunk
        if self.pause:
            self.pause = max(0, self.pause - deltas)
        elif deltas:
            self._alone += 1
            if self._alone > _TRIES:
                self.pause = _PAUSE
            run = self._run_after(event, chunk) if says else None
        if run is not None:  # one character more, because a line break may precede the text
            self._add(event, len(event) - run.frame + 1, deltas)
            self._run = run
            return True
        if deltas and not self.chunks and not says:
            self.silent += 1
        self._add(event, len(event) if says else 0, deltas, _Parsed(chunk, len(event)))
        return False

    def keep(self, block: bytes) -> None:
        """Store a block of events of any kind."""
        at, returns = 0, b"\r" in block
        while (at := self.take(block, at)) < len(block):
            end = len(block) if self.pause else sse.next_boundary(block, at, returns)
            self.add(block[at:end])
            at = end

    def _add(self, event: bytes, most_characters: int, deltas: int, kept: bytes | _Parsed | None = None) -> None:
        """End the present run, and store `event` in the form `kept`; None if its text is in the run that begins with
        it."""
        self._end_run()
        self.chunks += deltas
        self.most_characters += most_characters
        if event.find(CITATION) >= 0:
            self.cites = True
        if kept is not None:
            self._kept.append(kept)
        self._held += len(event) if kept is event else len(event) * _PARSED_WEIGHT
        if self._held > FOLD_BYTES:
            self.read()

    def _end_run(self) -> None:
        if self._run is not None and (text := self._run.take_text()):
            self._kept.append(text)

    def read(self) -> Assembly:
        """Parse all events stored so far. Returns the assembled answer."""
        self._end_run()
        for kept in self._kept:
            if type(kept) is bytes:
                self._assembly.add(kept)
            elif type(kept) is RunText:
                self._assembly.add_text(*kept)
            else:
                self._assembly.add_parsed(*kept)
        self._kept.clear()
        self._held = 0
        return self._assembly
