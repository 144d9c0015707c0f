"""Translates a Responses stream to chat chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from gateway.dialects.answers.usage import shown
from gateway.dialects.openai_chat.reader import DONE, ChunkMaker, event_of
from gateway.dialects.openai_responses.relay import broken
from gateway.dialects.openai_responses.transcript import DELTA
from gateway.dialects.openai_responses.usage import is_charged, reported, so_far
from gateway.dialects.streams import sse
from gateway.dialects.translate.chat_to_responses.reply import (
    BETWEEN_THOUGHTS,
    CALL_KINDS,
    as_chat_usage,
    chat_annotation,
    finish_of,
    shared_by_chunks,
)
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage

_TEXT = b"event: response.output_text.delta\n"
"""How nearly all events begin; then comes a line of data, and an empty one."""
_LINES = 3


class ResponsesStream(ChunkMaker):
    """StreamReader for OpenAI chat → Responses. `response.completed` and `response.incomplete` become `[DONE]`.

    Text is not even parsed: its bytes stand in an event as they have to stand in a chunk.
    """

    def __init__(self, *, wants_usage: bool, wants_logprobs: bool = False) -> None:
        super().__init__(shared_by_chunks({}), wants_usage=wants_usage)
        self._wants_logprobs = wants_logprobs
        self._thought = False
        self._calls: dict[int, _Call] = {}
        self._worked: list[dict[str, Any]] = []
        self._latest: dict[str, Any] = {}
        """The response as an event told it that was not the last of a whole one."""
        self._before, self._after = b"", b""
        """Of the text in a chunk; empty while every event has to be read."""
        self._readers: dict[str, Callable[[dict[str, Any]], bytes]] = {
            "response.created": self._created,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.content_part.added": self._part_added,
            "response.reasoning_part.added": self._part_added,
            "response.reasoning_summary_part.added": self._part_added,
            "response.reasoning_summary_text.delta": self._reasoning,
            "response.reasoning_text.delta": self._reasoning,
            "response.output_text.delta": self._content,
            "response.refusal.delta": self._refusal,
            "response.output_text.annotation.added": self._annotation,
            "response.function_call_arguments.delta": self._arguments,
            "response.custom_tool_call_input.delta": self._arguments,
            "response.completed": self._end,
            "response.incomplete": self._end,
        }

    @property
    def confidence(self) -> float | None:
        return self._transcript.read().confidence if self._wants_logprobs else None

    @property
    def reported(self) -> Usage | None:
        return self.usage or so_far(self._latest, self._worked)

    def feed(self, data: bytes) -> bytes:
        if self._smooth and data.startswith(_TEXT) and data.endswith(b"\n\n") and (text := _text_of(data)):
            relayed = b"%b%b%b" % (self._before, text, self._after)
            if self._transcript.take(relayed) < len(relayed):
                self._transcript.keep(relayed)
            return relayed
        relayed = self._feed(data)
        self._smooth = self._smooth and bool(self._before)
        return relayed

    def _read(self, event: bytes) -> bytes:
        if self.ended or self._failure:
            return b""
        if self._before and event.startswith(_TEXT) and (text := _text_of(event)):
            return b"%b%b%b" % (self._before, text, self._after)
        name, data = sse.fields(event)
        if not data or data == b"[DONE]":
            return b""
        try:
            said = orjson.loads(data)
            kind = said.get("type") or name.decode()
            if failure := broken(kind, said, data):
                self._failure = failure
                if type(response := said.get("response")) is dict:
                    self._latest = response
                return b""
            reader = self._readers.get(kind)
            return reader(said) if reader else b""
        except (ValueError, TypeError, KeyError, AttributeError):
            self._failure = BackendGarbage("The backend sent an event that is not one of Responses'.")
            return b""

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **beside: Any) -> bytes:
        if not self._begun and not self._wants_logprobs:
            self._before, self._after = _around_text(self._shared)
        return super()._chunk(delta, finish, **beside)

    def _created(self, said: dict[str, Any]) -> bytes:
        self._latest = said["response"]
        self._shared |= shared_by_chunks(said["response"])
        return self._chunk({"content": "", "refusal": None})

    def _item_added(self, said: dict[str, Any]) -> bytes:
        item = said["item"]
        if item.get("type") not in CALL_KINDS:
            return b""
        kind, given = CALL_KINDS[item["type"]]
        call = self._calls[said["output_index"]] = _Call(len(self._calls), kind, given)
        inner = {"name": item["name"], given: ""}
        opening = {"index": call.number, "id": item.get("call_id") or item.get("id"), "type": kind, kind: inner}
        return self._chunk({"tool_calls": [opening]})

    def _arguments(self, said: dict[str, Any]) -> bytes:
        call = self._calls.get(said.get("output_index", -1))
        if call is None or not said["delta"]:
            return b""
        call.spoken = True
        return self._piece(call, said["delta"])

    def _item_done(self, said: dict[str, Any]) -> bytes:
        """Some servers say the arguments only at the end."""
        if is_charged(said.get("item")):
            self._worked.append(said["item"])
        call = self._calls.get(said.get("output_index", -1))
        if call is None or call.spoken or not said["item"].get(call.given):
            return b""
        return self._piece(call, said["item"][call.given])

    def _piece(self, call: _Call, text: str) -> bytes:
        return self._chunk({"tool_calls": [{"index": call.number, call.kind: {call.given: text}}]})

    def _part_added(self, said: dict[str, Any]) -> bytes:
        """Paragraphs of what is thought, which chat has in one piece."""
        if (said.get("part") or {}).get("type") not in (None, "summary_text", "reasoning_text"):
            return b""
        again, self._thought = self._thought, True
        return self._chunk({"reasoning_content": BETWEEN_THOUGHTS}) if again else b""

    def _reasoning(self, said: dict[str, Any]) -> bytes:
        return self._chunk({"reasoning_content": said["delta"]}) if said["delta"] else b""

    def _content(self, said: dict[str, Any]) -> bytes:
        rows = said.get("logprobs")
        logprobs = {"content": rows, "refusal": None} if rows and self._wants_logprobs else None
        return self._chunk({"content": said["delta"]}, logprobs=logprobs) if said["delta"] else b""

    def _refusal(self, said: dict[str, Any]) -> bytes:
        return self._chunk({"refusal": said["delta"]}) if said["delta"] else b""

    def _annotation(self, said: dict[str, Any]) -> bytes:
        return self._chunk({"annotations": [chat_annotation(said["annotation"])]})

    def _end(self, said: dict[str, Any]) -> bytes:
        response = said["response"]
        self.usage, self.finish = reported(response, self._worked), finish_of(response)
        if self._calls and self.finish == "stop":  # some servers leave the output out of the last event
            self.finish = "tool_calls"
        self.ended, self.ending = True, DONE
        self._transcript.silent += 1
        last = self._chunk({}, self.finish)
        self._chat_usage = as_chat_usage(response["usage"]) if shown(self.usage) else None
        return last + self._usage_chunk()


class _Call:
    """A tool call under way: its number among the calls, and what its kind and its arguments are called."""

    def __init__(self, number: int, kind: str, given: str) -> None:
        self.number, self.kind, self.given = number, kind, given
        self.spoken = False


def _around_text(shared: dict[str, Any]) -> tuple[bytes, bytes]:
    """What stands before and after the text of a chunk that has nothing else."""
    choice = {"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": None}
    before, after = event_of({**shared, "choices": [choice]}).split(b'"content":""')
    return before + b'"content":', after


def _text_of(event: bytes) -> bytes:
    """The JSON string that an event of text carries; empty when the event has to be read."""
    texts = DELTA.findall(event)
    if len(texts) != 1 or event.count(b"\n") != _LINES:
        return b""
    try:
        return b'"%b"' % texts[0] if orjson.loads(b'"%b"' % texts[0]) else b""
    except orjson.JSONDecodeError:
        return b""
