"""Relays a stream, and parses only the events that matter to usage and end."""

from __future__ import annotations

import re
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson

from gateway.dialects.answers.upstream_error import broken, find_error
from gateway.dialects.anthropic_messages import events
from gateway.dialects.anthropic_messages.assembly import MessageAssembly
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.dialects.streams import sse
from gateway.dialects.streams.event_reader import EventReader
from gateway.dialects.translate.chat_to_messages.reply import finish_of
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage

_DELTA = re.compile(
    rb"event: ?content_block_delta\r?\n"
    rb'data: ?\{"type": ?"content_block_delta", ?"index": ?(\d{1,4}), ?"delta": ?\{'
    rb'"type": ?"(text_delta", ?"text|thinking_delta", ?"thinking|input_json_delta", ?"partial_json)": ?'
    rb'"((?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+)"\} *\}\r?\n\r?\n'
).match
"""A delta that says nothing but text, written as Anthropic does: at times with blanks before the last brace."""

_FOLD_BYTES = 64 * 1024
"""Kept before it is understood, so that a long stream needs little memory."""


class MessagesRelay(EventReader):
    """StreamReader for Anthropic messages → Anthropic messages.

    On the common path nothing is parsed: one look at the bytes of a delta tells where its text is and where it ends.
    `usage` stays None until the final counts came: the first event knows the input but next to nothing of the output.
    """

    confidence: float | None = None

    def __init__(self) -> None:
        super().__init__()
        self.chunks = self.silent = 0
        self._said = MessageAssembly()
        self._pieces: list[tuple[bytes, ...]] = []
        """Index of the block, field and text of the deltas that were not parsed."""
        self._held = 0
        self._open: int | None = None
        """The content block under way."""

    @property
    def reported(self) -> Usage | None:
        return self.usage or messages_usage(self._said.usage)

    def feed(self, data: bytes) -> bytes:
        taken = self._take(data, 0) if self._smooth else 0
        if taken == len(data):
            return data
        return self._feed(data, taken)

    def _take(self, block: bytes, at: int) -> int:
        """Keep the deltas from `at` on; returns where the first other event begins."""
        begin = at
        while found := _DELTA(block, at):
            said = found.groups()
            if said[2]:
                self.chunks += 1
                self._pieces.append(said)
            at = found.end()
        self._held += at - begin
        if self._held > _FOLD_BYTES:
            self._fold()
        return at

    def _fold(self) -> None:
        """Understand what was kept."""
        pieces, self._pieces, self._held = self._pieces, [], 0
        for (index, field), said in groupby(pieces, key=_place):
            self._said.say(int(index), field.rpartition(b'"')[2].decode(), b"".join([text for _, _, text in said]))

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
        """Take note of what an event says; True when it is to be relayed."""
        name, data = sse.fields(event)
        if not data:
            return True
        try:
            said = orjson.loads(data)
            kind = said["type"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            said, kind = None, None
        if name == b"error" or kind == "error":
            self._failure = broken(find_error(said), data)
            if type(said) is dict:
                self._said.count(said.get("usage"))
        elif kind is None:
            self._failure = BackendGarbage("The backend sent an event that is not one of Anthropic's.")
        else:
            self._note(kind, said, len(data))
            if kind == "message_stop":
                self.ended, self.ending = True, event if event.endswith((b"\n\n", b"\r\n\r\n")) else event + b"\n\n"
        return not (self.ended or self._failure)

    def _note(self, kind: str, said: dict[str, Any], size: int) -> None:
        self._fold()
        self._said.add(said, size)
        if kind == "message_start":  # counted so that nobody waits for more before it is passed on
            self.chunks += 1
            self.silent += 1
        elif kind == "content_block_stop":
            self._open = None
        elif kind == "content_block_start":
            self._open = said.get("index")
            self.chunks += _field(said, "content_block", "type") == "tool_use"
        elif kind == "content_block_delta":
            self.chunks += any(_field(said, "delta", name) for name in ("text", "thinking", "partial_json"))
        elif kind == "message_delta":
            self.usage = messages_usage(self._said.usage)
            self.finish = finish_of(_field(said, "delta", "stop_reason")) or self.finish

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
        return self._said


_place = itemgetter(0, 1)


def _field(said: dict[str, Any], group: str, name: str) -> Any:
    inner = said.get(group)
    return inner.get(name) if type(inner) is dict else None
