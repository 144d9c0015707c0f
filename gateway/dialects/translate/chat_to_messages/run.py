"""Translates a run of Anthropic events that differ only in one text field, without parsing each."""

from __future__ import annotations

from typing import Self

import orjson

from gateway.dialects import json_splice

_QUOTE = b'"'


class DeltaRun:
    """Events like one already read, and the chat chunk that says the same, each as what stands around the text.

    Anthropic pads its events with blanks before the last braces, so that their length betrays nothing.
    """

    def __init__(self, event: tuple[bytes, bytes], chunk: tuple[bytes, bytes], kept: list[bytes] | None) -> None:
        """`event`, `chunk`: what stands around the text. `kept`: takes the text, each the inside of a JSON string."""
        self._before, self._after = event
        self._opening, self._closing = chunk
        self._kept = kept
        self._unpadded = self._after.replace(b" ", b"")
        self._last = self._after.count(_QUOTE) == 1
        """Is the text the last string of an event? Then its end can be told however it is padded."""

    @classmethod
    def after(
        cls, event: bytes, key: str, chunk: bytes, field: str, text: str, kept: list[bytes] | None = None
    ) -> Self | None:
        """The run that `event` may begin, with `text` under `key`, where `chunk` has it under `field`.

        None if it is written in an unusual way.
        """
        around, said = _around(event, key, text), _around(chunk, field, text)
        return cls(around, said, kept) if around and said else None

    def said(self, event: bytes) -> bytes | None:
        """The chunk that says what `event` says; None if it is not one event of this run, and of proper JSON."""
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
    """May it stand between the quotes of a JSON string? So it has no line breaks either."""
    try:
        orjson.loads(b'"%b"' % text)
    except orjson.JSONDecodeError:
        return False
    return True


def _around(event: bytes, key: str, text: str) -> tuple[bytes, bytes] | None:
    """What stands before and after `text`, the value of `key`."""
    name = b'"%b":' % key.encode()
    if event.count(name) != 1:
        return None
    start = event.index(_QUOTE, event.index(name) + len(name))
    end = json_splice.string_end(event, start)
    if orjson.loads(event[start:end]) != text:
        return None
    return event[: start + 1], event[end - 1 :]
