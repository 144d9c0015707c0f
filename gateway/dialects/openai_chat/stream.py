"""Passes on a chat stream. Does not parse events that differ from the one before only in their text. In a stream whose
events differ in more, parses only those that contain a usage, an error, a finish reason or the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from gateway.dialects.answers.upstream_error import broken, find_error
from gateway.dialects.answers.usage import later, openai_usage, shown, usage_with
from gateway.dialects.openai_chat.message import overall_finish
from gateway.dialects.openai_chat.reader import DONE, ChatReader
from gateway.dialects.openai_chat.usage import SEARCHED, tier_of, usage_in
from gateway.dialects.streams import sse
from gateway.dialects.streams.transcript import Transcript
from gateway.dialects.translate.chat_to_messages.reply import chat_usage
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, StreamBroken

_MARKS = (b'"finish_reason":"', b'"usage":{', b"[DONE]", b"error", b'"finish_reason": "', b'"usage": {')
"""Texts that occur in events that must be parsed, as written in compact JSON and in JSON with spaces. A text with
quotes cannot occur inside a JSON string, because quotes are escaped there."""
_NULLS = (b',"usage":null', b', "usage": null')
"""Two forms of a usage that is null. They cannot occur inside a JSON string, because the quotes would be escaped there.
"""


class ChatStream(ChatReader):
    """Implements `StreamReader` for a chat client with a chat backend. The client gets `[DONE]` only if the backend
    sends it."""

    def __init__(
        self, *, wants_usage: bool, wants_logprobs: bool = False, transcript: Transcript | None = None
    ) -> None:
        super().__init__(transcript or Transcript(), wants_usage=wants_usage)
        self._wants_logprobs = wants_logprobs
        self._whole = False
        self._counted: tuple[Any, Usage | None] = (None, None)
        """The last usage object that was counted, and its counts."""

    def feed(self, data: bytes) -> bytes:
        # Simple data are passed on at once: texts of the present run, and whole events that are single JSON objects
        # without a mark (no usage, no error, no finish reason, not the end). `_feed` gives other data to `_relay`.
        relayed, smooth = data, self._smooth
        taken = self._transcript.take(data) if smooth else 0
        if taken != len(data):
            if smooth and data.endswith(b"\n\n") and not sse.has_any(data, _MARKS) and sse.sound(data[taken:]):
                self._transcript.keep(data[taken:])
            else:
                relayed = self._feed(data, taken)
        return relayed if self._wants_usage else _without_null_usage(relayed)

    def _relay(self, block: bytes) -> bytes:
        transcript, returns = self._transcript, b"\r" in block
        relayed, begin, at = [], 0, 0
        if transcript.pause and (at := _first_marked(block)):
            if sse.sound(block[:at]):
                transcript.add(block[:at])
            else:
                at = 0
        while not (self.ended or self._failure) and (at := transcript.take(block, at)) < len(block):
            end = sse.next_boundary(block, at, returns)
            event = block[at:end]
            if transcript.pause and not sse.has_any(event, _MARKS) and sse.sound(event):
                transcript.add(event)
            elif not self._read(event):
                relayed.append(block[begin:at])
                begin = end
            at = end
        relayed.append(block[begin:at])
        return b"".join(relayed)

    def _read(self, event: bytes) -> bool:
        """Process an event. Returns whether the event is passed on to the client."""
        name, data = sse.fields(event)
        if data == b"[DONE]":
            self._end(event)
            return False
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            chunk = None
        plain = type(chunk) is dict and "choices" in chunk and event.rfind(b"error") < 0  # usual, and without an error
        found = None if plain else find_error(chunk)
        if found or name == b"error":
            self._failure = broken(found, data)
            if type(chunk) is dict:
                self._count(chunk)
            return False
        if type(chunk) is dict:
            return self._transcript.add_parsed(event, chunk) or self._note(chunk)
        if data and not sse.has_any(event, _MARKS) and sse.sound(event):
            self._transcript.add(event)
        elif data:
            self._failure = BackendGarbage("The backend sent an event that is not one of a chat stream.")
        return not self._failure

    def _note(self, chunk: dict[str, Any]) -> bool:
        choices, ends = chunk.get("choices"), False
        self._count(chunk)
        if type(choices) is not list:
            return True
        for choice in choices:
            reason = choice.get("finish_reason") if type(choice) is dict else None
            if type(reason) is str and reason:
                self.finish, ends = overall_finish((self.finish, reason)), True
        if ends and not self._transcript.says(chunk):
            self._transcript.silent += 1
        only_usage = not choices and type(chunk.get("usage")) is dict
        return self._wants_usage or not only_usage

    def _count(self, chunk: dict[str, Any]) -> None:
        """Store the usage in a chunk. A later usage may replace it, because some servers report a running total in
        every chunk."""
        if (found := usage_in(chunk)) is not None:
            self._counted = found, openai_usage(found, tier=tier_of(chunk) or self._tier)
            self.usage = later(self._counted[1], self.usage)

    @property
    def _tier(self) -> str:
        """The service tier in the first chunk; empty if the first chunk has no tier. Later chunks without a tier have
        the same tier."""
        first = self._transcript.first
        return tier_of(first) if first else ""

    @property
    def reported(self) -> Usage | None:
        usage = self.usage or openai_usage(self._transcript.read().usage, tier=self._tier)
        return usage_with(usage, self._tier, SEARCHED if self._transcript.cites else ())

    def _end(self, event: bytes) -> None:
        if not self.chunks and not self.finish:
            self._failure = BackendGarbage("The backend ended its stream without an answer.")
            return
        self.ended = self._whole = True
        self.ending = event
        self._look_again()

    def _look_again(self) -> None:
        """Search all stored events for the finish reason and the usage. Needed if they were missed when the events
        arrived."""
        if not self.finish or not self.usage:
            found = self._transcript.read()
            self.finish = self.finish or found.finish
            self.usage = self.usage or openai_usage(found.usage, tier=self._tier)
        if self.usage and self._transcript.cites:
            self.usage = replace(self.usage, fees=SEARCHED)

    def eof(self) -> None:
        """Called at the end of the stream. Without `[DONE]`, every choice must have a finish reason. Raises the failure
        that the backend reported, or StreamBroken for an incomplete answer."""
        if self._whole:
            return
        self._read_rest()
        if not self._whole and not self._transcript.read().finished:
            raise StreamBroken("The backend closed its stream before the answer was complete.")
        self._whole = True
        self._look_again()

    def cut(self, delivered: Usage) -> bytes:
        chunk = self._transcript.read().cut()
        last = b"data: %b\n\n" % orjson.dumps(chunk)
        if self._wants_usage:
            last += b"data: %b\n\n" % orjson.dumps({**chunk, "choices": [], "usage": chat_usage(delivered)})
        return last + DONE

    def _take_last(self, event: bytes) -> None:
        if self._read(event):
            self.ending = event

    def completion(self) -> bytes | None:
        if not self._whole:
            return None
        assembly = self._transcript.read()
        # usually the last chunk's usage is the answer's, and was counted when it came
        read = self._counted[1] if assembly.usage is self._counted[0] else openai_usage(assembly.usage)
        return assembly.completion(assembly.usage if shown(read) else None)

    @property
    def confidence(self) -> float | None:
        return self._transcript.read().confidence if self._wants_logprobs else None


def _without_null_usage(relayed: bytes) -> bytes:
    """The events without usage fields that are null. Backends send these fields because the gateway asked for usage
    although the client did not."""
    for null in _NULLS:
        if relayed.rfind(null) >= 0:
            relayed = relayed.replace(null, b"")
    return relayed


def _first_marked(block: bytes) -> int:
    """The position of the first event that must be parsed; the length of `block` if there is none."""
    first = len(block)
    for mark in _MARKS:  # backwards, because `rfind` is faster than `find`
        at = block.rfind(mark)
        while at >= 0:
            first = min(first, at)
            at = block.rfind(mark, 0, first)
    return first if first == len(block) else sse.boundary(block[:first])
