"""Reads a sequence of events that differ only in one text. The single events are not parsed."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any, NamedTuple, Self

import orjson

from gateway.dialects import json_splice

_FIELDS = ("content", "reasoning_content", "reasoning")
_Object = dict[str, Any]
_SEPARATOR_BYTES = 12
"""Number of bytes of the separator at which a block is split. A longer separator would not be found faster."""
_WINDOW = 32 * 1024
"""Maximum number of bytes that are processed at once."""

_PAUSE = 64
"""Number of events that are read one by one after an attempt to read several at once failed, because an attempt may
search the whole window."""

_ODD = re.compile(rb'(\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))|\\u[0-9a-fA-F]{4}|[\\\x00-\x1f]')
"""Matches characters that JSON does not allow inside a string: surrogates, unknown escapes, control characters. Group 1
is an allowed escape."""


class RunText(NamedTuple):
    """The joined texts of several events of `run`, in the form of the content of one JSON string."""

    run: TextRun
    text: bytes


class TextRun:
    """A sequence of events that differ only in one text of their only choice. The first event was parsed to `chunk`.
    All others have the same bytes, except for this text, which is `holder[field]`."""

    def __init__(self, before: bytes, text: bytes, after: bytes, chunk: _Object, holder: _Object, field: str) -> None:
        self.chunk, self.holder, self.field = chunk, holder, field  # a template: `Assembly.add_text` sets the text
        self.head, self.tail = before, after
        """The bytes before and after the text in each event of the run. They include the quotes of the text."""
        self.frame = len(before) + len(after)
        self._separator = after[:_SEPARATOR_BYTES]
        self._pieces = [text]

    @classmethod
    def after(cls, event: bytes, chunk: _Object) -> Self | None:
        """The sequence of similar events that may begin with `event`. `chunk`: the parsed event. None if the event
        contains more than text, or more than a piece of the arguments of one call."""
        choices = chunk.get("choices") if chunk.get("usage") is None and "x_groq" not in chunk else None
        choice = choices[0] if type(choices) is list and len(choices) == 1 else None
        holder = choice.get("delta") if type(choice) is dict else None
        if type(choice) is not dict or type(holder) is not dict or event.count(b'"delta"') != 1:
            return None
        field = ""
        for name, value in holder.items():
            if value and name != "role":
                if field:
                    return None
                field = name
        if field == "tool_calls":
            called = _called(holder[field])
            return cls.around(event, chunk, choice, called, "arguments") if called else None
        return cls.around(event, chunk, choice, holder, field) if field in _FIELDS else None

    @classmethod
    def around(cls, event: bytes, chunk: _Object, choice: _Object, holder: _Object, field: str) -> Self | None:
        """The sequence of events that differ from `event` only in the text `holder[field]` of the only `choice`.

        None if the position of the text in `event` is uncertain.
        """
        text, quoted = holder[field], b'"%b"' % field.encode()
        if choice.get("logprobs") or choice.get("finish_reason") or type(choice.get("index", 0)) is not int:
            return None
        if type(text) is not str or event.count(quoted) != 1:
            return None
        try:
            start = event.index(b'"', event.index(quoted) + len(quoted))
            end = json_splice.string_end(event, start)
            if orjson.loads(event[start:end]) != text:
                return None
        except ValueError:
            return None
        return cls(event[: start + 1], event[start + 1 : end - 1], event[end - 1 :], chunk, holder, field)

    def take(self, block: bytes, at: int = 0) -> tuple[int, int]:
        """Store the texts of the events from position `at` that belong to the sequence. Returns (position of the first
        other event, number of stored texts)."""
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
        """Process many events at once. Returns (position after them, number of stored texts). Returns (`at`, 0) if one
        of the events does not belong to the sequence."""
        try:
            end, texts = split(block, at, self.head, self.tail)
        except ValueError:
            return at, 0
        joined = b"".join(texts)
        if not _inside(joined) or (b"\\" in joined and block.find(b"\\" + self._separator, at, end) >= 0):
            return at, 0
        self._pieces.append(joined)
        return end, len(texts)

    def take_text(self) -> RunText | None:
        """Remove and return the text stored so far; None if there is none."""
        text, self._pieces = b"".join(self._pieces), []
        return RunText(self, text) if text else None


class AlikeEvents:
    """Events that consist of `before`, a text and `after`. Several of them are read at once."""

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before, self.after = before, after
        self._pause = 0
        """Number of events that are read one by one before `take` tries again."""

    def take(self, block: bytes, at: int) -> tuple[int, list[bytes], list[str]]:
        """Read the events from position `at`. Returns three values: the position after the events, the contents of
        their JSON strings, and the decoded texts.

        The lists are empty if the next event does not have the expected form, or if it must be parsed by itself.
        """
        if not block.startswith(self.before, at):
            return at, [], []
        if self._pause:
            self._pause -= 1
            return at, [], []
        try:
            end, contents = split(block, at, self.before, self.after)
            return end, contents, decoded(contents)
        except ValueError:
            self._pause = _PAUSE
            return at, [], []


def split(block: bytes, at: int, before: bytes, after: bytes) -> tuple[int, list[bytes]]:
    """Split the events from position `at`, each of which consists of `before`, a text and `after`. Reads at most a
    fixed number of bytes.

    Returns the position after the last event that was read, and the texts, without validating them. Raises ValueError
    if an event has another form.
    """
    end = block.rfind(after, at, at + _WINDOW) + len(after)
    separator = after[:_SEPARATOR_BYTES]
    skip = len(after) + len(before) - len(separator)
    texts = block[at + len(before) : end].split(separator)
    texts.pop()
    texts[1:] = map(itemgetter(slice(skip, None)), texts[1:])
    if b"%b%b%b" % (before, (after + before).join(texts), after) != block[at:end]:
        raise ValueError("the events are not alike")
    return end, texts


def decoded(contents: list[bytes]) -> list[str]:
    """Decode the contents of JSON strings. Raises ValueError if one of them is not valid."""
    joined = b'","'.join(contents)
    if b'\\","' in joined:  # a content may end with a backslash
        return [orjson.loads(b'"%b"' % content) for content in contents]
    texts: list[str] = orjson.loads(b'["%b"]' % joined)
    if len(texts) != len(contents) or set(map(type, texts)) - {str}:
        raise ValueError("a content has quotes that are not escaped")
    return texts


def mended(data: bytes) -> bytes:
    """`data`, JSON or the content of a JSON string, with blanks in place of the characters that JSON does not allow
    inside a string. So a text that only lenient clients can read is counted too."""
    return _ODD.sub(lambda found: found[1] or b" ", data.decode(errors="replace").encode())


def encoded(texts: list[str]) -> list[bytes]:
    """Encode each of `texts`, of which there is at least one, as the content of a JSON string."""
    return orjson.dumps(texts)[2:-2].split(b'","')  # inside a JSON string, a quote has a backslash before it


def events_with(before: bytes, texts: list[str], after: bytes) -> bytes:
    """An event for each of `texts`. `before`, `after`: the bytes of the event around the content of the text."""
    return b"%b%b%b" % (before, (after + before).join(encoded(texts)), after)


def _called(calls: Any) -> _Object | None:
    """The object in `calls` that contains a piece of arguments. None unless `calls` is one call of a function, with its
    index, and contains no other text."""
    match calls:
        case [dict(call)] if type(call.get("index")) is int and "custom" not in call:
            function = call.get("function")
            if type(function) is dict and function.get("arguments") and not function.get("name"):
                return function if "input" not in function else None
    return None


def _inside(text: bytes) -> bool:
    """Whether `text` is valid between the quotes of one JSON string."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return not (b'"' in text or b"\n" in text or b"\r" in text or text.endswith(b"\\"))
