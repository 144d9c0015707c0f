"""Relaying a chat stream as it comes, reading only the events that matter to the money and the end."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects import sse
from gateway.dialects.chat_assembly import Assembly
from gateway.dialects.upstream_error import find_error
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
        if name == b"error" or (error := find_error(chunk)):
            said = find_error(chunk)
            self._failure = StreamBroken(f"The backend's stream ended with an error: {said.message if said else data}")
            return False
        self._keep(event)
        return type(chunk) is not dict or self._note(chunk)

    def _note(self, chunk: dict[str, Any]) -> bool:
        raw_usage = chunk.get("usage")
        self.usage = openai_usage(raw_usage) or self.usage
        choices = chunk.get("choices")
        if not choices:
            return self._wants_usage or choices is None or type(raw_usage) is not dict
        ...
        return True
