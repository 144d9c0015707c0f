"""Relaying a chat stream as it comes, reading only the events that matter to the money and the end."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects import sse
from gateway.dialects.chat_assembly import Assembly
from gateway.dialects.chat_message import overall_finish
from gateway.dialects.upstream_error import MAX_MESSAGE, error_in, find_error
from gateway.dialects.usage import openai_usage
from gateway.domain.usage import Usage
from gateway.errors import BackendError, BackendGarbage, StreamBroken

DONE = b"data: [DONE]\n\n"

_FOLD_BYTES = 128 * 1024
"""Raw events kept before they are parsed into what they say, so that a long stream needs little memory."""


class ChatStream:
    """StreamReader for OpenAI chat → OpenAI chat. An upstream that never sends `[DONE]` gets none from us either.

    On the common path nothing is parsed: bytes are searched for the few words that an event worth reading must have.
    `finish` and `usage` written in an unusual way (`"usage" : {`) are still found, when the stream has ended.
    """

    def __init__(self, *, wants_usage: bool, wants_logprobs: bool = False) -> None:
        self.usage: Usage | None = None
        self.finish = ""
        self.ended = False
        self.ending = b""
        self.chunks = 0
        self._wants_usage = wants_usage
        self._wants_logprobs = wants_logprobs
        self._framer = sse.Framer()
        self._head: bytes | None = b""
        self._smooth = False
        self._whole = False
        self._failure: BackendError | None = None
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._assembly = Assembly()

    def feed(self, data: bytes) -> bytes:
        if self._smooth and data.endswith(b"\n\n") and not _marked(data):
            self._keep(data)
            return data
        if self._failure:
            raise self._failure
        if self.ended:
            return b""
        relayed = self._relay(self._framed(data))
        self._smooth = self._framer.empty and not self.ended and self._failure is None
        if self._failure and not relayed:
            raise self._failure
        return relayed

    def _framed(self, data: bytes) -> bytes:
        if self._head is not None:
            self._check_beginning(data)
        try:
            return self._framer.feed(data)
        except sse.EventTooLarge as error:
            raise BackendGarbage(f"The backend's stream cannot be read: {error}.") from error

    def _check_beginning(self, data: bytes) -> None:
        self._head = (self._head or b"") + data
        begins = sse.begins(self._head)
        if begins:
            self._head = None
        elif begins is False:
            raise BackendGarbage(not_a_stream(self._head))

    def _relay(self, block: bytes) -> bytes:
        start = _first_marked(block)
        relayed = [block[:start]] if start else []
        if start:
            self._keep(block[:start])
        for event in sse.events(block[start:]) if start < len(block) else ():
            if self.ended or self._failure:
                break
            if not _marked(event):
                self._keep(event)
                relayed.append(event)
            elif self._read(event):
                relayed.append(event)
        return b"".join(relayed)

    def _keep(self, block: bytes) -> None:
        self.chunks += block.count(b'"delta"')
        self._kept.append(block)
        self._kept_bytes += len(block)
        if self._kept_bytes > _FOLD_BYTES:
            self._fold()

    def _fold(self) -> None:
        for block in self._kept:
            self._assembly.add(block)
        self._kept.clear()
        self._kept_bytes = 0

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
            words = said.message if said else data[:MAX_MESSAGE].decode(errors="replace")
            self._failure = StreamBroken(f"The backend's stream ended with an error: {words}")
            return False
        self._keep(event)
        return type(chunk) is not dict or self._note(chunk)

    def _note(self, chunk: dict[str, Any]) -> bool:
        raw_usage, choices = chunk.get("usage"), chunk.get("choices")
        self.usage = openai_usage(raw_usage) or self.usage
        if type(choices) is not list:
            return True
        reasons = (choice.get("finish_reason") for choice in choices if type(choice) is dict)
        self.finish = overall_finish((self.finish, *reasons))
        only_usage = not choices and type(raw_usage) is dict
        return self._wants_usage or not only_usage

    def _end(self, event: bytes) -> None:
        if not self.chunks and not self.finish:
            self._failure = BackendGarbage("The backend ended its stream without an answer.")
            return
        self.ended = self._whole = True
        self.ending = event
        self._look_again()

    def _look_again(self) -> None:
        """What the search did not find may still be there, written in an unusual way."""
        if self.finish and self.usage:
            return
        self._fold()
        self.finish = self.finish or self._assembly.finish
        self.usage = self.usage or openai_usage(self._assembly.usage)

    def eof(self) -> None:
        """Whole without `[DONE]` too, if every choice said why it ended. Raises the upstream's failure, if any."""
        if self._whole:
            return
        rest = self._framer.rest()
        if rest.strip() and not self._failure and (rest.startswith(b"error:") or is_event(rest)):
            self._last(rest)
        if self._failure:
            raise self._failure
        self._look_again()
        self._fold()
        if not self._whole and not self._assembly.finished:
            raise StreamBroken("The backend closed its stream before the answer was complete.")
        self._whole = True

    def _last(self, rest: bytes) -> None:
        """The last event lacks its blank line."""
        if self._read(rest):
            self.ending = rest

    def completion(self) -> bytes | None:
        if not self._whole:
            return None
        self._fold()
        raw_usage = self._assembly.usage
        return self._assembly.completion(raw_usage if openai_usage(raw_usage) else None)

    def delivered_text(self) -> str:
        self._fold()
        return self._assembly.text()

    @property
    def confidence(self) -> float | None:
        if not self._wants_logprobs:
            return None
        self._fold()
        return self._assembly.confidence


def is_event(rest: bytes) -> bool:
    """Is this an event that lacks only its blank line, or the beginning of one that was cut?"""
    data = sse.payload(rest)
    if data == b"[DONE]":
        return True
    try:
        return type(orjson.loads(data)) is dict
    except orjson.JSONDecodeError:
        return False


def not_a_stream(head: bytes) -> str:
    """What to say when a backend answers with something else than events."""
    error = error_in(head)
    return "The backend did not answer with an event stream" + (f": {error.message}" if error else ".")


def _marked(block: bytes) -> bool:
    """Might there be something to read? `rfind` is the fastest search that bytes have."""
    find = block.rfind
    return (
        find(b'"finish_reason":"') >= 0
        or find(b'"usage":{') >= 0
        or find(b"[DONE]") >= 0
        or find(b"error") >= 0
        or find(b'"finish_reason": "') >= 0
        or find(b'"usage": {') >= 0
    )


_MARKS = (b'"finish_reason":"', b'"usage":{', b"[DONE]", b"error", b'"finish_reason": "', b'"usage": {')


def _first_marked(block: bytes) -> int:
    """Where the first event begins that `_marked` would stop at; the length of `block` if none."""
    at = min((block.find(mark) for mark in _MARKS if block.rfind(mark) >= 0), default=-1)
    return len(block) if at < 0 else sse.boundary(block[:at])
