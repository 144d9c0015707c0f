"""Passes on a Responses stream. Parses only the events that contain usage, errors or the end of the answer."""

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
"""Texts that occur in events that must be parsed. In most streams, few other events contain these texts."""
_WORK = (*_MARKS, b"response.output_item.done")
"""The texts that are searched for while a tool of the provider runs. Events without these texts are never parsed one by
one."""


class ResponsesRelay(EventReader):
    """Implements `StreamReader` if client and backend use OpenAI Responses. If the backend sends no final event, the
    client gets no final event."""

    def __init__(self, *, wants_logprobs: bool = False) -> None:
        super().__init__()
        self.silent = 0
        self._wants_logprobs = wants_logprobs
        self._transcript = ResponsesTranscript()
        self._response: dict[str, Any] | None = None
        self._partial = PartialResponse()
        self._marks: tuple[bytes, ...] = _MARKS
        self._tool_items: list[dict[str, Any]] = []
        """The finished output items of tools that the provider runs."""
        self._latest: dict[str, Any] = {}
        """The response object in the latest event that was not the final event."""

    @property
    def chunks(self) -> int:
        return self._transcript.chunks

    @property
    def most_characters(self) -> int:
        return self._transcript.characters

    def feed(self, data: bytes) -> bytes:
        if self._smooth and data.endswith(b"\n\n") and not sse.has_any(data, self._marks) and sse.sound(data):
            self._transcript.add(data)
            return data
        return self._feed(data)

    def _relay(self, block: bytes) -> bytes:
        relayed, at = list[bytes](), 0
        while at < len(block):
            marks = self._marks
            for part, marked in sse.parts(block[at:], marks):
                at += len(part)
                whole = marked or sse.sound(part)
                for event in (part,) if whole else sse.events(part):
                    if self.ended or self._failure:
                        return b"".join(relayed)
                    if not marked and (whole or sse.sound(event)):
                        self._transcript.add(event)
                    elif not self._read(event):
                        continue
                    relayed.append(event)
                if self._marks is not marks:  # an event has changed the texts that are searched for
                    break
        return b"".join(relayed)

    def _read(self, event: bytes) -> bool:
        """Process an event. Returns whether the event is passed on to the client now."""
        name, data = sse.fields(event)
        if data == b"[DONE]":
            return False  # `[DONE]` does not belong to this dialect
        try:
            parsed = orjson.loads(data)
        except orjson.JSONDecodeError:
            parsed = None
        kind = parsed.get("type") if type(parsed) is dict else name.decode(errors="replace")
        if failure := broken(kind, parsed, data):
            self._failure = failure
            self._note_response(parsed)
        elif type(parsed) is not dict:
            if data:
                self._failure = BackendGarbage("The backend sent an event that is not one of a response.")
        elif kind in ("response.completed", "response.incomplete"):
            self._end(event, parsed)
        else:
            self._note(event, kind, parsed)
            return True
        return not self.ended and not self._failure

    def _note(self, event: bytes, kind: object, parsed: Any) -> None:
        item = parsed.get("item")
        if kind == "response.created":
            self._transcript.chunks += 1
            self.silent += 1
            self._partial.created(parsed.get("response"))
            self._note_response(parsed)
        elif kind == "response.output_item.added":
            self._partial.added(item, self._transcript.characters)
            if type(item) is dict and type(item.get("name")) is str:
                self._transcript.add_text(f"\n{item['name']}\n")
            if is_charged(item):
                self._marks = _WORK
        elif kind == "response.output_item.done" and is_charged(item):
            self._tool_items.append(item)
        self._transcript.add(event)

    def _note_response(self, parsed: Any) -> None:
        response = parsed.get("response") if type(parsed) is dict else None
        if type(response) is dict:
            self._latest = response

    @property
    def reported(self) -> Usage | None:
        return self.usage or so_far(self._latest, self._tool_items)

    def _end(self, event: bytes, parsed: Any) -> None:
        response = parsed.get("response")
        if type(response) is not dict:
            self._failure = BackendGarbage("The backend ended its stream without a response.")
            return
        self._response = response
        self.usage, self.finish = reported(response, self._tool_items), finish_of(response)
        self.ended, self.ending = True, event

    def cut(self, delivered: Usage) -> bytes:
        return self._partial.cut(self._transcript.text(), self._transcript.last, delivered)

    def completion(self) -> bytes | None:
        """The `response` of the final event, as its original bytes. None if there is no final event, or the response is
        too large or lacks the text that was streamed: some servers send no output in the final event."""
        if self._response is None or (not self._response.get("output") and self._transcript.characters):
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


def broken(kind: object, parsed: Any, data: bytes) -> StreamBroken | None:
    """The failure that an event reports; None if the event reports no failure. A failure is an `error` in any format,
    or `response.failed`."""
    failed = parsed.get("response") if type(parsed) is dict and kind == "response.failed" else parsed
    error = find_error(failed)
    if not error and kind not in ("error", "response.failed"):
        return None
    return upstream_error.broken(error, data)
