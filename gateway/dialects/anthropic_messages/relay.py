"""Passes on an Anthropic stream. Parses only the events that contain usage, errors or the end of the answer."""

from __future__ import annotations

import re
from itertools import groupby
from operator import itemgetter, methodcaller
from typing import Any

import orjson

from gateway.dialects.answers.upstream_error import broken, find_error
from gateway.dialects.anthropic_messages import events
from gateway.dialects.anthropic_messages.assembly import MessageAssembly
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.dialects.streams import sse
from gateway.dialects.streams.event_reader import FOLD_BYTES, EventReader
from gateway.dialects.streams.text_run import split
from gateway.dialects.translate.chat_to_messages.reply import finish_of
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage

_DELTA = re.compile(
    rb"event: ?content_block_delta\r?\n"
    rb'data: ?\{"type": ?"content_block_delta", ?"index": ?(\d{1,4}), ?"delta": ?\{'
    rb'"type": ?"(text_delta", ?"text|thinking_delta", ?"thinking|input_json_delta", ?"partial_json)": ?'
    rb'"((?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+)"\} *\}\r?\n\r?\n'
).match
"""Matches a delta event that contains only text, in the form that Anthropic writes. Some deltas have blanks before the
last brace."""

_CONTENT = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+').fullmatch
"""Matches the content of a JSON string, as `_DELTA` does."""
_STOP = b"event: content_block_stop"
"""The beginning of the event that ends a block. The deltas of the next block differ."""


class MessagesRelay(EventReader):
    """Implements `StreamReader` for an Anthropic client with an Anthropic backend. `usage` is None until the final
    counts arrive."""

    confidence: float | None = None

    def __init__(self) -> None:
        super().__init__()
        self.chunks = self.silent = self.most_characters = 0
        self._assembly = MessageAssembly()
        self._pieces: list[tuple[bytes, ...]] = []
        """The deltas that were not parsed: (index of the block, field, text). Deltas that arrived together and differ
        only in their text are one piece."""
        self._held = 0
        self._open: int | None = None
        """Index of the content block in progress; None between blocks."""

    @property
    def reported(self) -> Usage | None:
        return self.usage or messages_usage(self._assembly.usage)

    def feed(self, data: bytes) -> bytes:
        taken = self._take(data, 0) if self._smooth else 0
        if taken == len(data):
            return data
        return self._feed(data, taken)

    def _take(self, block: bytes, at: int) -> int:
        """Store the deltas that begin at position `at`. Returns the position of the first event of another kind."""
        found, begin, alone = _DELTA(block, at), at, False
        if not found:
            return at
        while found:
            index, field, text = found.groups()
            self.chunks += text != b""
            at = found.end()
            if not alone and at < len(block):
                texts, at = _alike(block, found)
                self.chunks += len(texts) - texts.count(b"")
                text += b"".join(texts)
                alone = True
            self._pieces.append((index, field, text))
            self.most_characters += len(text)
            found = _DELTA(block, at)
        self._held += at - begin
        if self._held > FOLD_BYTES:
            self._fold()
        return at

    def _fold(self) -> None:
        """Add the stored deltas to the assembly."""
        pieces, self._pieces, self._held = self._pieces, [], 0
        for (index, field), deltas in groupby(pieces, key=_place):
            self._assembly.add_text(int(index), field.rpartition(b'"')[2].decode(), b"".join(map(_text, deltas)))

    def _relay(self, block: bytes) -> bytes:
        relayed, begin, at, returns = [], 0, 0, b"\r" in block
        while not (self.ended or self._failure) and (at := self._take(block, at)) < len(block):
            end = sse.next_boundary(block, at, returns)
            if not self._read(block[at:end]):
                relayed.append(block[begin:at])
                begin = end
            at = end
        relayed.append(block[begin:at])
        return b"".join(relayed)

    def _read(self, event: bytes) -> bool:
        """Process an event. Returns whether the event is passed on to the client."""
        name, data = sse.fields(event)
        if not data:
            return True
        try:
            parsed = orjson.loads(data)
            kind = parsed["type"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            parsed, kind = None, None
        if name == b"error" or kind == "error":
            self._failure = broken(find_error(parsed), data)
            if type(parsed) is dict:
                self._assembly.count(parsed.get("usage"))
        elif kind is None:
            self._failure = BackendGarbage("The backend sent an event that is not one of Anthropic's.")
        else:
            self._note(kind, parsed, len(data))
            if kind == "message_stop":
                self.ended, self.ending = True, event if event.endswith((b"\n\n", b"\r\n\r\n")) else event + b"\n\n"
        return not (self.ended or self._failure)

    def _note(self, kind: str, parsed: dict[str, Any], size: int) -> None:
        if self._pieces:  # saves the call
            self._fold()
        self._assembly.add(parsed, size)
        if kind == "message_start":  # count the event now, so that it is passed on at once
            self.chunks += 1
            self.silent += 1
        elif kind == "content_block_stop":
            self._open = None
        elif kind == "content_block_start":
            self._open = parsed.get("index")
            self.most_characters += size
            self.chunks += _field(parsed, "content_block", "type") == "tool_use"
        elif kind == "content_block_delta":
            self.most_characters += size
            self.chunks += any(_field(parsed, "delta", name) for name in ("text", "thinking", "partial_json"))
        elif kind == "message_delta":
            self.usage = messages_usage(self._assembly.usage)
            self.finish = finish_of(_field(parsed, "delta", "stop_reason")) or self.finish

    def cut(self, delivered: Usage) -> bytes:
        open_block = b"" if self._open is None else events.block_stop(self._open)
        counted = {**self._read_so_far().usage, "output_tokens": delivered.all_output}
        last = events.message_delta({"stop_reason": "max_tokens", "stop_sequence": None}, counted)
        return open_block + last + events.STOP

    def completion(self) -> bytes | None:
        return self._read_so_far().message()

    def delivered_text(self) -> str:
        return self._read_so_far().text()

    def delivered_characters(self) -> int:
        return self._read_so_far().characters

    def _read_so_far(self) -> MessageAssembly:
        self._fold()
        return self._assembly


_place, _text = itemgetter(0, 1), itemgetter(2)
_ends_in_backslash = methodcaller("endswith", b"\\")


def _alike(block: bytes, found: re.Match[bytes]) -> tuple[list[bytes], int]:
    """Read the deltas after `found` that differ from it only in their text. Returns their texts, and the position after
    them.

    Returns no texts if there is another event among them, or if a text must be parsed alone.
    """
    start, end, at = *found.span(3), found.end()
    before, after = block[found.start() : start], block[end:at]
    if not block.startswith(before, at):
        return [], at
    stop = block.find(_STOP, at)
    try:
        last, texts = split(block[: stop if stop >= 0 else len(block)], at, before, after)
    except ValueError:
        return [], at
    sound = _CONTENT(b"".join(texts)) and not any(map(_ends_in_backslash, texts))  # the backslash may escape the quote
    return (texts, last) if sound else ([], at)


def _field(parsed: dict[str, Any], group: str, name: str) -> Any:
    inner = parsed.get(group)
    return inner.get(name) if type(inner) is dict else None
