"""Relays a Responses stream, and parses only the events that matter to usage and end."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.answers import upstream_error
from gateway.dialects.answers.upstream_error import find_error
from gateway.dialects.json_splice import find
from gateway.dialects.openai_chat.message import mean_probability
from gateway.dialects.openai_responses.cut import PartialResponse
from gateway.dialects.openai_responses.response_object import MOST_KEPT_BYTES
from gateway.dialects.openai_responses.transcript import ResponsesTranscript
from gateway.dialects.openai_responses.usage import is_charged, reported, so_far
from gateway.dialects.streams import sse
from gateway.dialects.streams.event_reader import EventReader
from gateway.dialects.translate.chat_to_responses.reply import choices, finish_of
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, StreamBroken

_MARKS = (
    *(b"error", b"response.completed", b"response.incomplete", b"response.failed"),
    *(b"response.created", b"response.output_item.added", b"[DONE]"),
)
"""What an event that matters contains. In most streams nothing else does, or hardly anything."""
_WORK = (*_MARKS, b"response.output_item.done")
"""The same where a tool of the provider's is at work."""


class ResponsesRelay(EventReader):
    """StreamReader for OpenAI Responses on both sides. An upstream that never completes is not completed by us."""

    def __init__(self, *, wants_logprobs: bool = False) -> None:
        super().__init__()
        self.silent = 0
        self._wants_logprobs = wants_logprobs
        self._transcript = ResponsesTranscript()
        self._response: dict[str, Any] | None = None
        self._begun = PartialResponse()
        self._marks: tuple[bytes, ...] = _MARKS
        self._worked: list[dict[str, Any]] = []
        """Items of the provider's tools that have ended."""
        self._latest: dict[str, Any] = {}
        """The response as an event told it that was not the last of a whole one."""

    @property
    def chunks(self) -> int:
        return self._transcript.chunks

    def feed(self, data: bytes) -> bytes:
        if self._smooth and data.endswith(b"\n\n") and not sse.has_any(data, self._marks) and sse.sound(data):
            self._transcript.add(data)
            return data
        return self._feed(data)

    def _relay(self, block: bytes) -> bytes:
        if not sse.has_any(block, self._marks) and sse.sound(block):
            self._transcript.add(block)
            return block
        relayed = []
        for event in sse.events(block):
            if self.ended or self._failure:
                break
            if not sse.has_any(event, self._marks) and sse.sound(event):
                self._transcript.add(event)
            elif not self._read(event):
                continue
            relayed.append(event)
        return b"".join(relayed)

    def _read(self, event: bytes) -> bool:
        """Take note of what an event says; True when it is to be relayed now."""
        name, data = sse.fields(event)
        if data == b"[DONE]":
            return False  # not how this dialect ends
        try:
            said = orjson.loads(data)
        except orjson.JSONDecodeError:
            said = None
        kind = said.get("type") if type(said) is dict else name.decode(errors="replace")
        if failure := broken(kind, said, data):
            self._failure = failure
            self._note_response(said)
        elif data and type(said) is not dict:
            self._failure = BackendGarbage("The backend sent an event that is not one of a response.")
        elif kind in ("response.completed", "response.incomplete"):
            self._end(event, said)
        else:
            self._note(event, kind, said)
            return True
        return not self.ended and not self._failure

    def _note(self, event: bytes, kind: object, said: Any) -> None:
        if kind == "response.output_item.added":
            self._begun.added(said.get("item"), self._transcript.characters)
        self._transcript.add(event)
        if kind == "response.created":
            self._transcript.chunks += 1
            self.silent += 1
            self._begun.created(said.get("response"))
            self._note_response(said)
        elif kind == "response.output_item.added":
            item = said.get("item")
            if type(item) is dict and type(item.get("name")) is str:
                self._transcript.say(f"\n{item['name']}\n")
            if is_charged(item):
                self._marks = _WORK
        elif kind == "response.output_item.done" and is_charged(said.get("item")):
            self._worked.append(said["item"])

    def _note_response(self, said: Any) -> None:
        response = said.get("response") if type(said) is dict else None
        if type(response) is dict:
            self._latest = response

    @property
    def reported(self) -> Usage | None:
        return self.usage or so_far(self._latest, self._worked)

    def _end(self, event: bytes, said: Any) -> None:
        response = said.get("response")
        if type(response) is not dict:
            self._failure = BackendGarbage("The backend ended its stream without a response.")
            return
        self._response = response
        self.usage, self.finish = reported(response, self._worked), finish_of(response)
        self.ended, self.ending = True, event

    def cut(self, delivered: Usage) -> bytes:
        return self._begun.cut(self._transcript.text(), self._transcript.last, delivered)

    def completion(self) -> bytes | None:
        """The `response` that the last event carries, in its own bytes."""
        if self._response is None:
            return None
        data = sse.payload(self.ending)
        start, end = find(data, "response")[-1]
        return data[start:end] if end - start <= MOST_KEPT_BYTES else None

    def delivered_text(self) -> str:
        return self._transcript.text()

    def delivered_characters(self) -> int:
        return self._transcript.characters

    @property
    def confidence(self) -> float | None:
        return mean_probability(choices(self._response)) if self._wants_logprobs and self._response else None


def broken(kind: object, said: Any, data: bytes) -> StreamBroken | None:
    """The failure that an event tells of: `error` in any of its shapes, or `response.failed`."""
    failed = said.get("response") if type(said) is dict and kind == "response.failed" else said
    error = find_error(failed)
    if not error and kind not in ("error", "response.failed"):
        return None
    return upstream_error.broken(error, data)
