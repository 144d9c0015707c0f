"""Reading a run of stream events that differ in nothing but one piece of text, without parsing each."""

from __future__ import annotations

from typing import Any

from gateway.dialects import splice

_FIELDS = ("content", "reasoning_content")
_WINDOW = 8192
"""Bytes looked at together: searching is fast, searching again what comes after the run is not."""


class TextRun:
    """Events byte for byte equal to a parsed one, up to the text in `field` of choice number `choice`."""

    def __init__(self, before: bytes = b"", after: bytes = b"", choice: int = 0, field: str = "") -> None:
        self.choice = choice
        self.field = field
        self._before = before
        self._after = after
        self._pieces: list[bytes] = []

    @classmethod
    def after(cls, event: bytes, chunk: dict[str, Any]) -> TextRun:
        """The run that `event`, parsed as `chunk`, may begin; one that takes nothing if it is more than text."""
        choices = chunk.get("choices")
        if not choices or len(choices) > 1 or chunk.get("usage") is not None:
            return cls()
        delta = choices[0].get("delta") or {}
        field = next((field for field in _FIELDS if delta.get(field)), "")
        quoted = b'"%s"' % field.encode()
        beside = any(value for name, value in delta.items() if name not in (field, "role"))
        if not field or beside or event.count(quoted) != 1 or choices[0].get("logprobs"):
            return cls()
        start = event.index(b'"', event.index(quoted) + len(quoted))
        end = splice.string_end(event, start)
        return cls(event[: start + 1], event[end - 1 :], choices[0].get("index", 0), field)

    def take(self, block: bytes, at: int) -> int:
        """Keep the text of the events from `at` on that belong to the run; returns where the first other begins."""
        while self._before and block.startswith(self._before, at):
            start = at
            at = self._take_some(block, at)
            if at == start:
                break
        return at

    def _take_some(self, block: bytes, at: int) -> int:
        start = at + len(self._before)
        *texts, rest = block[start : start + _WINDOW].split(self._after + self._before)
        end = rest.find(self._after)
        if end >= 0:
            texts.append(rest[:end])
        joined = b"".join(texts)
        if b'"' in joined:  # Not the end of a string was found there, but a later event like the others.
            texts = texts[: next(number for number, text in enumerate(texts) if b'"' in text)]
            joined = b"".join(texts)
        self._pieces.append(joined)
        return at + len(joined) + len(texts) * (len(self._before) + len(self._after))

    def text(self) -> bytes:
        """Take the text of all events kept, as one JSON string; empty when there are none."""
        text, self._pieces = b"".join(self._pieces), []
        return b'"%s"' % text if text else b""
