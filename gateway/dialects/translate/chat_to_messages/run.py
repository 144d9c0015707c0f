"""Translates a sequence of Anthropic events that differ only in one text. The single events are not parsed."""

from __future__ import annotations

from typing import Self

import orjson

from gateway.dialects import json_splice
from gateway.dialects.streams.text_run import AlikeEvents

_QUOTE = b'"'


class DeltaRun:
    """A sequence of Anthropic events that differ only in their text, and the chat chunk for these events. The events
    may also differ in the number of blanks before their last braces."""

    def __init__(self, event: tuple[bytes, bytes], chunk: tuple[bytes, bytes], kept: list[bytes] | None) -> None:
        """`event`, `chunk`: bytes before and after the text. `kept`: list to which each text is appended, as content of
        a JSON string."""
        self._alike = AlikeEvents(*event)
        self._opening, self._closing = chunk
        self._kept = kept
        self._unpadded = self._alike.after.replace(b" ", b"")
        self._last = self._alike.after.count(_QUOTE) == 1
        """Whether the text is the last string of the event. If so, the end of the text can be found for any number of
        blanks."""

    @classmethod
    def after(
        cls, event: bytes, key: str, chunk: bytes, field: str, text: str, kept: list[bytes] | None = None
    ) -> Self | None:
        """The sequence of similar events that begins with `event`. None if the event or the chunk has an unusual form.

        `text`: the event's text. `key`: the field of the text in the event. `chunk`: the translated event. `field`: the
        field of the text in the chunk. `kept`: a list to which the text of each event is appended.
        """
        in_event, in_chunk = _around(event, key, text), _around(chunk, field, text)
        return cls(in_event, in_chunk, kept) if in_event and in_chunk else None

    def chunk_for(self, event: bytes) -> bytes | None:
        """The chunk for `event`. None if `event` is not exactly one event of this run, or is not valid JSON."""
        before, after = self._alike.before, self._alike.after
        if not event.startswith(before):
            return None
        start = len(before)
        if event.endswith(after):
            text = event[start : -len(after)]
        else:
            end = event.rfind(_QUOTE, start) if self._last else -1
            if end < 0 or event[end:].replace(b" ", b"") != self._unpadded:
                return None
            text = event[start:end]
        if not text or not _is_string(text):
            return None
        if self._kept is not None:
            self._kept.append(text)
        return b"%b%b%b" % (self._opening, text, self._closing)

    def chunks_for(self, block: bytes, at: int) -> tuple[int, bytes]:
        """Translate the events of this run from position `at` on. Returns the chunks and the position after these
        events.

        Returns (`at`, b"") if the next event must be parsed alone.
        """
        end, contents, _ = self._alike.take(block, at)
        if not (texts := [content for content in contents if content]):
            return end, b""
        if self._kept is not None:
            self._kept += texts
        return end, b"%b%b%b" % (self._opening, (self._closing + self._opening).join(texts), self._closing)


def _is_string(text: bytes) -> bool:
    """Whether `text` is valid as the content of a JSON string. If so, `text` contains no line break."""
    try:
        orjson.loads(b'"%b"' % text)
    except orjson.JSONDecodeError:
        return False
    return True


def _around(event: bytes, key: str, text: str) -> tuple[bytes, bytes] | None:
    """The bytes before and after `text`, the value of `key` in `event`. None if these bytes cannot be found."""
    name = b'"%b":' % key.encode()
    if event.count(name) != 1:
        return None
    start = event.index(_QUOTE, event.index(name) + len(name))
    end = json_splice.string_end(event, start)
    if orjson.loads(event[start:end]) != text:
        return None
    return event[: start + 1], event[end - 1 :]
