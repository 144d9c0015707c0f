"""Reads a run of events that differ only in one text field, without parsing each."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import orjson

from gateway.dialects import json_splice

_FIELDS = ("content", "reasoning_content", "reasoning")
_SEPARATOR_BYTES = 12
"""What a block is split at begins with the text's closing quote; a long needle is searched no faster."""
_WINDOW = 32 * 1024
"""Bytes looked at together."""


class RunText(NamedTuple):
    """Text of a run, as the inside of one JSON string."""

    choice: int
    field: str
    text: bytes


class TextRun:
    """Events byte for byte equal to a parsed one, but for the text in `field` of choice number `choice`.

    So they say nothing else, and each has one delta. An event of which that is not certain does not belong to the run.
    """

    def __init__(self, before: bytes, after: bytes, choice: int, field: str) -> None:
        self._choice, self.field = choice, field
        self.head, self.tail = before, after
        """What stands around the text of every event, the quotes included."""
        self._joint = after + before
        self._separator = after[:_SEPARATOR_BYTES]
        self._skip = len(self._joint) - len(self._separator)
        self._pieces: list[bytes] = []

    @classmethod
    def after(cls, event: bytes, chunk: Any) -> Self | None:
        """The run that `event`, parsed as `chunk`, may begin; None if it is more than text."""
        choices = chunk.get("choices") if type(chunk) is dict and chunk.get("usage") is None else None
        choice = choices[0] if type(choices) is list and len(choices) == 1 else None
        delta = choice.get("delta") if type(choice) is dict else None
        if type(choice) is not dict or type(delta) is not dict:
            return None
        field = next((field for field in _FIELDS if delta.get(field)), "")
        beside = any(value for name, value in delta.items() if name not in (field, "role"))
        if not field or beside or event.count(b'"delta"') != 1:
            return None
        return cls.around(event, choice, field, delta[field])

    @classmethod
    def around(cls, event: bytes, choice: dict[str, Any], field: str, text: object) -> Self | None:
        """The run of events that differ from `event` in nothing but `text`, which is the `field` of its one choice."""
        index, quoted = choice.get("index", 0), b'"%b"' % field.encode()
        if choice.get("logprobs") or choice.get("finish_reason") or type(index) is not int or type(text) is not str:
            return None
        if event.count(quoted) != 1:
            return None
        start = event.index(b'"', event.index(quoted) + len(quoted))
        end = json_splice.string_end(event, start)
        if orjson.loads(event[start:end]) != text:
            return None
        return cls(event[: start + 1], event[end - 1 :], index, field)

    def take(self, block: bytes, at: int = 0) -> tuple[int, int]:
        """Keep the text of the events from `at` on that belong to the run; where the first other begins, how many."""
        before, after = self.head, self.tail
        if not block.startswith(before, at):
            return at, 0
        if block.endswith(after):
            text = block[at + len(before) : -len(after)]
            if _inside(text):
                self._pieces.append(text)
                return len(block), 1
        events, many = 0, True
        while block.startswith(before, at):
            end, count = self._some(block, at) if many else self._one(block, at)
            if not count and not many:
                break
            at, events, many = end, events + count, count > 1
        return at, events

    def _one(self, block: bytes, at: int) -> tuple[int, int]:
        start = at + len(self.head)
        end = block.find(self.tail, start)
        if end < 0 or not _inside(text := block[start:end]):
            return at, 0
        self._pieces.append(text)
        return end + len(self.tail), 1

    def _some(self, block: bytes, at: int) -> tuple[int, int]:
        """What comes next, if it is all the same, as it mostly is: split, put together again and compared."""
        end = block.rfind(self.tail, at, at + _WINDOW) + len(self.tail)
        texts = block[at + len(self.head) : end].split(self._separator)
        texts.pop()
        skip = self._skip
        texts[1:] = [text[skip:] for text in texts[1:]]
        joined = b"".join(texts)
        if not _inside(joined) or (b"\\" in joined and block.find(b"\\" + self._separator, at, end) >= 0):
            return at, 0
        if b"%b%b%b" % (self.head, self._joint.join(texts), self.tail) != block[at:end]:
            return at, 0
        self._pieces.append(joined)
        return end, len(texts)

    def said(self) -> RunText | None:
        """Take the text of all events kept; None when there is none."""
        text, self._pieces = b"".join(self._pieces), []
        return RunText(self._choice, self.field, text) if text else None


def _inside(text: bytes) -> bool:
    """Is this what may stand between the quotes of one JSON string?"""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return not (b'"' in text or b"\n" in text or b"\r" in text or text.endswith(b"\\"))
