"""Relays a chat stream, and parses only the events that matter to usage and end."""

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
"""What an event that matters contains, compact or with spaces. Inside a JSON string the quotes would be escaped."""


_NULLS = (b',"usage":null', b', "usage": null')
"""Inside a JSON string the quotes would be escaped."""


class ChatStream(ChatReader):
    """StreamReader for OpenAI chat → OpenAI chat. An upstream that never sends `[DONE]` gets none from us either.

    On the common path nothing is parsed: bytes are searched for the few words that an event worth reading must have.
    `finish` and `usage` written in an unusual way (`"usage" : {`) are still found, when the stream has ended.
    """

    def __init__(
        self, *, wants_usage: bool, wants_logprobs: bool = False, transcript: Transcript | None = None
    ) -> None:
        super().__init__(transcript or Transcript(), wants_usage=wants_usage)
        self._wants_logprobs = wants_logprobs
        self._whole = False

    def feed(self, data: bytes) -> bytes:
        relayed = self._fed(data)
        return relayed if self._wants_usage else _without_null_usage(relayed)

    def _fed(self, data: bytes) -> bytes:
        taken = self._transcript.take(data) if self._smooth else 0
        if taken == len(data):
            return data
        if self._smooth and data.endswith(b"\n\n") and not sse.has_any(data, _MARKS) and sse.sound(data[taken:]):
            self._transcript.keep(data[taken:])
            return data
        return self._feed(data, taken)

    def _relay(self, block: bytes) -> bytes:
        transcript, returns = self._transcript, b"\r" in block
        relayed, begin, at = [], 0, 0
        if transcript.irregular and (at := _first_marked(block)):
            if sse.sound(block[:at]):
                transcript.add(block[:at])
            else:
                at = 0
        while not (self.ended or self._failure) and (at := transcript.take(block, at)) < len(block):
            end = sse.next_boundary(block, at, returns)
            event = block[at:end]
            if not sse.has_any(event, _MARKS) and (sse.sound(event) or sse.lacks_only_its_end(event)):
                transcript.add(event)
            elif not self._read(event):
                relayed.append(block[begin:at])
                begin = end
            at = end
        relayed.append(block[begin:at])
        return b"".join(relayed)

    def _read(self, event: bytes) -> bool:
        """Take note of what an event says; True when it is to be relayed."""
        name, data = sse.fields(event)
        if data == b"[DONE]":
            self._end(event)
            return False
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            chunk = None
        said = find_error(chunk)
        if said or name == b"error":
            self._failure = broken(said, data)
            if type(chunk) is dict:
                self._count(chunk)
            return False
        if type(chunk) is not dict:
            if data:
                self._failure = BackendGarbage("The backend sent an event that is not one of a chat stream.")
            return not data
        self._transcript.add_parsed(event, chunk)
        return self._note(chunk)

    def _note(self, chunk: dict[str, Any]) -> bool:
        choices = chunk.get("choices")
        self._count(chunk)
        if type(choices) is not list:
            return True
        reasons = [choice.get("finish_reason") for choice in choices if type(choice) is dict]
        if any(reasons):
            if not self._transcript.says(chunk):
                self._transcript.silent += 1
            self.finish = overall_finish((self.finish, *reasons))
        only_usage = not choices and type(chunk.get("usage")) is dict
        return self._wants_usage or not only_usage

    def _count(self, chunk: dict[str, Any]) -> None:
        """Take note of the usage that a chunk reports; some servers report in every chunk what it was until then."""
        if (said := usage_in(chunk)) is not None:
            self.usage = later(openai_usage(said, tier=tier_of(chunk) or self._tier), self.usage)

    @property
    def _tier(self) -> str:
        """Not every provider repeats what it said at first."""
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
        """What the search did not find may still be there, written in an unusual way."""
        if not self.finish or not self.usage:
            said = self._transcript.read()
            self.finish = self.finish or said.finish
            self.usage = self.usage or openai_usage(said.usage, tier=self._tier)
        if self.usage and self._transcript.cites:
            self.usage = replace(self.usage, fees=SEARCHED)

    def eof(self) -> None:
        """Whole without `[DONE]` too, if every choice said why it ended. Raises the upstream's failure, if any."""
        if self._whole:
            return
        self._read_rest()
        if not self._whole and not self._transcript.read().finished:
            raise StreamBroken("The backend closed its stream before the answer was complete.")
        self._whole = True
        self._look_again()

    def cut(self, delivered: Usage) -> bytes:
        chunk = self._transcript.read().cut()
        said = b"data: %b\n\n" % orjson.dumps(chunk)
        if self._wants_usage:
            said += b"data: %b\n\n" % orjson.dumps({**chunk, "choices": [], "usage": chat_usage(delivered)})
        return said + DONE

    def _take_last(self, event: bytes) -> None:
        if self._read(event):
            self.ending = event

    def completion(self) -> bytes | None:
        if not self._whole:
            return None
        said = self._transcript.read()
        return said.completion(said.usage if shown(openai_usage(said.usage)) else None)

    @property
    def confidence(self) -> float | None:
        return self._transcript.read().confidence if self._wants_logprobs else None


def _without_null_usage(relayed: bytes) -> bytes:
    """Many backends say in every chunk that there is no usage yet, because the gateway asked for it."""
    for null in _NULLS:
        if relayed.rfind(null) >= 0:
            relayed = relayed.replace(null, b"")
    return relayed


def _first_marked(block: bytes) -> int:
    """Where the first marked event begins; the length of `block` if there is none."""
    first = len(block)
    for mark in _MARKS:
        at = block.rfind(mark)
        while at >= 0:
            first = min(first, at)
            at = block.rfind(mark, 0, first)
    return first if first == len(block) else sse.boundary(block[:first])
