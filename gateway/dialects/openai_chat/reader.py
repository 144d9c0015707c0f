"""Base of stream readers that produce chat chunks."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import orjson

from gateway.dialects.streams import sse
from gateway.dialects.streams.event_reader import EventReader
from gateway.dialects.streams.transcript import Transcript
from gateway.dialects.translate.chat_to_messages.reply import chat_usage
from gateway.domain.money.usage import Usage

DONE = b"data: [DONE]\n\n"


class ChatReader(EventReader):
    """Keeps in a transcript what the client got, or would have got."""

    def __init__(self, transcript: Transcript, *, wants_usage: bool) -> None:
        super().__init__()
        self._transcript = transcript
        self._wants_usage = wants_usage

    @property
    def chunks(self) -> int:
        return self._transcript.chunks

    @property
    def silent(self) -> int:
        return self._transcript.silent

    def delivered_text(self) -> str:
        return self._transcript.read().text()

    def delivered_characters(self) -> int:
        return self._transcript.read().characters


class ChunkMaker(ChatReader):
    """Chunks out of the events of another dialect; the first one says who speaks."""

    def __init__(self, shared: dict[str, Any], *, wants_usage: bool) -> None:
        """`shared`: what every chunk has."""
        super().__init__(Transcript(), wants_usage=wants_usage)
        self._shared = shared
        self._begun = False
        self._chat_usage: dict[str, Any] | None = None
        """The final counts in chat's words."""

    @abstractmethod
    def _read(self, event: bytes) -> bytes:
        """The chunks that an event becomes."""

    def _relay(self, block: bytes) -> bytes:
        relayed = b"".join([self._read(event) for event in sse.events(block)])
        if relayed:
            self._transcript.keep(relayed)
        return relayed

    def _take_last(self, event: bytes) -> None:
        self.ending = self._relay(event) + self.ending

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **beside: Any) -> bytes:
        if not self._begun:  # with whatever comes first: llama.cpp leaves out message_start before half a character
            delta = {"role": "assistant", **delta}
            self._begun = True
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **beside}
        return event_of({**self._shared, "choices": [choice]})

    def _usage_chunk(self) -> bytes:
        """For who asked, once the counts are known."""
        if self._wants_usage and self._chat_usage:
            return event_of({**self._shared, "choices": [], "usage": self._chat_usage})
        return b""

    def cut(self, delivered: Usage) -> bytes:
        said = self._chunk({}, "length")
        if self._wants_usage:
            said += event_of({**self._shared, "choices": [], "usage": chat_usage(delivered)})
        return said + DONE

    def completion(self) -> bytes | None:
        return self._transcript.read().completion(self._chat_usage) if self.ended else None


def event_of(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
