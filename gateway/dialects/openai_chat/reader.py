"""Base of stream readers whose output is chat chunks."""

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
    """Base class of stream readers that store every chat event of an answer in a transcript. Events that the client
    does not get are stored too."""

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

    @property
    def most_characters(self) -> int:
        return self._transcript.most_characters


class ChunkMaker(ChatReader):
    """Writes chat chunks from the events of another dialect. The first chunk contains the role."""

    def __init__(self, shared: dict[str, Any], *, wants_usage: bool) -> None:
        """`shared`: the fields that all chunks have in common."""
        super().__init__(Transcript(), wants_usage=wants_usage)
        self._shared = shared
        self._begun = False
        self._chat_usage: dict[str, Any] | None = None
        """The final usage in the format of chat; None until it is known."""

    @abstractmethod
    def _read(self, event: bytes) -> bytes:
        """Convert an event to chunks. Returns the bytes of the chunks; empty if the event needs no chunk."""

    def _relay(self, block: bytes) -> bytes:
        pieces: list[bytes] = []
        at, returns = 0, b"\r" in block
        while at < len(block) and not (self.ended or self._failure):
            end, chunks = self._read_many(block, at)
            if end == at:
                end = sse.next_boundary(block, at, returns)
                chunks = self._read(block[at:end])
            pieces.append(chunks)
            at = end
        if relayed := b"".join(pieces):
            self._transcript.keep(relayed)
        return relayed

    def _read_many(self, block: bytes, at: int) -> tuple[int, bytes]:
        """Convert several events at once, from position `at`. Returns (position after them, chunks).

        Returns (`at`, b"") if the next event must be parsed alone.
        """
        return at, b""

    def _take_last(self, event: bytes) -> None:
        self.ending = self._relay(event) + self.ending

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **beside: Any) -> bytes:
        if not self._begun:  # begins with the first chunk of any kind, because llama.cpp may omit message_start
            delta = {"role": "assistant", **delta}
            self._begun = True
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **beside}
        return event_of({**self._shared, "choices": [choice]})

    def _usage_chunk(self) -> bytes:
        """The chunk with the usage. Empty if the client did not ask for usage, or if the usage is not known yet."""
        if self._wants_usage and self._chat_usage:
            return event_of({**self._shared, "choices": [], "usage": self._chat_usage})
        return b""

    def cut(self, delivered: Usage) -> bytes:
        last = self._chunk({}, "length")
        if self._wants_usage:
            last += event_of({**self._shared, "choices": [], "usage": chat_usage(delivered)})
        return last + DONE

    def completion(self) -> bytes | None:
        return self._transcript.read().completion(self._chat_usage) if self.ended else None


def around_text(shared: dict[str, Any]) -> tuple[bytes, bytes]:
    """The bytes before and after the JSON string in a chunk that contains only text."""
    choice = {"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": None}
    before, after = event_of({**shared, "choices": [choice]}).rsplit(b'"content":""', 1)
    return before + b'"content":', after


def event_of(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
