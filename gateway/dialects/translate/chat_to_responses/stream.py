"""Translates a Responses stream to chat chunks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import orjson

from gateway.dialects.answers.usage import shown
from gateway.dialects.openai_chat.reader import DONE, ChunkMaker, around_text
from gateway.dialects.openai_responses.relay import broken
from gateway.dialects.openai_responses.transcript import DELTA
from gateway.dialects.openai_responses.usage import is_charged, reported, so_far
from gateway.dialects.streams import sse
from gateway.dialects.streams.text_run import decoded
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
"""The first line of most events. A line with the data and an empty line follow."""
_LINES = 3
_KEY = b'"delta":'
_WINDOW = 16 * 1024
"""Maximum number of bytes that are searched for text events at once."""


class ResponsesStream(ChunkMaker):
    """Implements `StreamReader` from OpenAI Responses to chat. The events `response.completed` and
    `response.incomplete` become `[DONE]`."""

    def __init__(self, *, wants_usage: bool, wants_logprobs: bool = False) -> None:
        super().__init__(shared_by_chunks({}), wants_usage=wants_usage)
        self._wants_logprobs = wants_logprobs
        self._thought = False
        self._calls: dict[int, _Call] = {}
        self._tool_items: list[dict[str, Any]] = []
        self._latest: dict[str, Any] = {}
        """The response object in the latest event that was not the final event."""
        self._before, self._after = b"", b""
        """The bytes before and after the text in a chunk. Empty while every event must be parsed."""
        self._readers: dict[str, Callable[[dict[str, Any]], bytes]] = {
            "response.created": self._created,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.content_part.added": self._part_added,
            "response.reasoning_part.added": self._part_added,
            "response.reasoning_summary_part.added": self._part_added,
            "response.reasoning_summary_text.delta": self._reasoning,
            "response.reasoning_text.delta": self._reasoning,
            "response.output_text.delta": self._text,
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
        return self.usage or so_far(self._latest, self._tool_items)

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
            parsed = orjson.loads(data)
            kind = parsed.get("type") or name.decode()
            if failure := broken(kind, parsed, data):
                self._failure = failure
                if type(response := parsed.get("response")) is dict:
                    self._latest = response
                return b""
            reader = self._readers.get(kind)
            return reader(parsed) if reader else b""
        except (ValueError, TypeError, KeyError, AttributeError):
            self._failure = BackendGarbage("The backend sent an event that is not one of Responses'.")
            return b""

    def _read_many(self, block: bytes, at: int) -> tuple[int, bytes]:
        if not self._before or not block.startswith(_TEXT, at):
            return at, b""
        lines = block[at : block.rfind(b"\n\n", at, at + _WINDOW) + 2].split(b"\n")
        events = next(place for place, name in enumerate(lines[::_LINES]) if name != _TEXT[:-1])
        data = lines[1 : _LINES * events : _LINES]
        contents: list[bytes] = DELTA.findall(b"\n".join(data))
        regular = len(contents) == events and not any(lines[2 : _LINES * events : _LINES])
        if not regular or set(map(bytes.count, data, repeat(_KEY))) != {1}:
            return at, b""
        try:
            decoded(contents)
        except ValueError:
            return at, b""
        end = at + events * (len(_TEXT) + 2) + sum(map(len, data))
        texts = [content for content in contents if content]
        before, after = self._before + b'"', b'"' + self._after
        return end, b"%b%b%b" % (before, (after + before).join(texts), after) if texts else b""

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **beside: Any) -> bytes:
        if not self._begun and not self._wants_logprobs:
            self._before, self._after = around_text(self._shared)
        return super()._chunk(delta, finish, **beside)

    def _created(self, parsed: dict[str, Any]) -> bytes:
        self._latest = parsed["response"]
        self._shared |= shared_by_chunks(parsed["response"])
        return self._chunk({"content": "", "refusal": None})

    def _item_added(self, parsed: dict[str, Any]) -> bytes:
        item = parsed["item"]
        if item.get("type") not in CALL_KINDS:
            return b""
        kind, value = CALL_KINDS[item["type"]]
        call = self._calls[parsed["output_index"]] = _Call(len(self._calls), kind, value)
        inner = {"name": item["name"], value: ""}
        opening = {"index": call.number, "id": item.get("call_id") or item.get("id"), "type": kind, kind: inner}
        return self._chunk({"tool_calls": [opening]})

    def _arguments(self, parsed: dict[str, Any]) -> bytes:
        call = self._calls.get(parsed.get("output_index", -1))
        if call is None or not parsed["delta"]:
            return b""
        call.has_arguments = True
        return self._piece(call, parsed["delta"])

    def _item_done(self, parsed: dict[str, Any]) -> bytes:
        """Close a tool call. Arguments that were not streamed are taken from this event."""
        if is_charged(parsed.get("item")):
            self._tool_items.append(parsed["item"])
        call = self._calls.get(parsed.get("output_index", -1))
        if call is None or call.has_arguments or not parsed["item"].get(call.arguments_key):
            return b""
        return self._piece(call, parsed["item"][call.arguments_key])

    def _piece(self, call: _Call, text: str) -> bytes:
        return self._chunk({"tool_calls": [{"index": call.number, call.kind: {call.arguments_key: text}}]})

    def _part_added(self, parsed: dict[str, Any]) -> bytes:
        """Write a separator between two parts of the thinking, because chat has only one text for the thinking."""
        if (parsed.get("part") or {}).get("type") not in (None, "summary_text", "reasoning_text"):
            return b""
        again, self._thought = self._thought, True
        return self._chunk({"reasoning_content": BETWEEN_THOUGHTS}) if again else b""

    def _reasoning(self, parsed: dict[str, Any]) -> bytes:
        return self._chunk({"reasoning_content": parsed["delta"]}) if parsed["delta"] else b""

    def _text(self, parsed: dict[str, Any]) -> bytes:
        rows = parsed.get("logprobs")
        logprobs = {"content": rows, "refusal": None} if rows and self._wants_logprobs else None
        return self._chunk({"content": parsed["delta"]}, logprobs=logprobs) if parsed["delta"] else b""

    def _refusal(self, parsed: dict[str, Any]) -> bytes:
        return self._chunk({"refusal": parsed["delta"]}) if parsed["delta"] else b""

    def _annotation(self, parsed: dict[str, Any]) -> bytes:
        return self._chunk({"annotations": [chat_annotation(parsed["annotation"])]})

    def _end(self, parsed: dict[str, Any]) -> bytes:
        response = parsed["response"]
        self.usage, self.finish = reported(response, self._tool_items), finish_of(response)
        if self._calls and self.finish == "stop":  # some servers send no output in the final event
            self.finish = "tool_calls"
        self.ended, self.ending = True, DONE
        self._transcript.silent += 1
        last = self._chunk({}, self.finish)
        self._chat_usage = as_chat_usage(response["usage"]) if shown(self.usage) else None
        return last + self._usage_chunk()


class _Call:
    """An open tool call: its index, its type in chat, and its field for arguments."""

    def __init__(self, number: int, kind: str, arguments_key: str) -> None:
        self.number, self.kind, self.arguments_key = number, kind, arguments_key
        self.has_arguments = False


def _text_of(event: bytes) -> bytes:
    """The JSON string in a text event. Empty if the event must be parsed."""
    if event.count(b"\n") != _LINES or len(texts := DELTA.findall(event)) != 1:
        return b""
    try:
        return b'"%b"' % texts[0] if orjson.loads(b'"%b"' % texts[0]) else b""
    except orjson.JSONDecodeError:
        return b""
