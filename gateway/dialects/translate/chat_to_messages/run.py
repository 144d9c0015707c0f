"""Translates a sequence of Anthropic events that differ only in one text field, without parsing each of them."""

from __future__ import annotations

from typing import Self

import orjson

from gateway.dialects import json_splice

_QUOTE = b'"'


class DeltaRun:
    """Events similar to a parsed event, and the chat chunk for them. Of both, the bytes around the text are stored.

    Anthropic adds blanks before the last braces of its events, to hide their length.
    """

    def __init__(self, event: tuple[bytes, bytes], chunk: tuple[bytes, bytes], kept: list[bytes] | None) -> None:
        """`event`, `chunk`: the bytes around the text. `kept`: a list to which the texts are appended, each as the
        content of a JSON string."""
        self._before, self._after = event
        self._opening, self._closing = chunk
        self._kept = kept
        self._unpadded = self._after.replace(b" ", b"")
        self._last = self._after.count(_QUOTE) == 1
        """Whether the text is the last string of the event. Then its end can be found whatever the padding is."""

    @classmethod
    def after(
        cls, event: bytes, key: str, chunk: bytes, field: str, text: str, kept: list[bytes] | None = None
    ) -> Self | None:
        """A run that begins with `event`. None if the event or the chunk is written in an unusual way.

        `text` is the event's text, under `key`. `chunk` is the event as translated, with the text under `field`.
        """
        in_event, in_chunk = _around(event, key, text), _around(chunk, field, text)
        return cls(in_event, in_chunk, kept) if in_event and in_chunk else None

    def chunk_for(self, event: bytes) -> bytes | None:
        """The chunk for `event`; None if `event` is not exactly one event of this run, or not valid JSON."""
        before = self._before
        if not event.startswith(before):
            return None
        start = len(before)
        if event.endswith(self._after):
            text = event[start : -len(self._after)]
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


def _is_string(text: bytes) -> bool:
    """Whether `text` is valid between the quotes of a JSON string. Then it contains no line break."""
    try:
        orjson.loads(b'"%b"' % text)
    except orjson.JSONDecodeError:
        return False
    return True


def _around(event: bytes, key: str, text: str) -> tuple[bytes, bytes] | None:
    """The bytes before and after `text`, the value of `key`; None if they cannot be found."""
    name = b'"%b":' % key.encode()
    if event.count(name) != 1:
        return None
    start = event.index(_QUOTE, event.index(name) + len(name))
    end = json_splice.string_end(event, start)
    if orjson.loads(event[start:end]) != text:
        return None
    return event[: start + 1], event[end - 1 :]
