"""Translates ConverseStream's events to chat chunks."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_chat.object_reader import ObjectReader
from gateway.dialects.translate.chat_to_converse.reply import fault, stop_reason, usage
from gateway.dialects.translate.chat_to_messages.stream import MessagesStream
from gateway.errors import BackendGarbage, FaultyAnswer

_START = {"type": "content_block_start"}


class ConverseStream(ObjectReader, MessagesStream):
    """Implements `StreamReader` from Converse to OpenAI chat, through Anthropic's events. The event `metadata` contains
    the usage and ends the stream."""

    def __init__(self, *, wants_usage: bool, created: int, name: str, model: str) -> None:
        """`name`: the id of the answer. `model`: the name of the model. Both are needed because Converse's events do
        not contain them."""
        super().__init__(wants_usage=wants_usage, created=created)
        self._named = {"id": name, "model": model}
        self._blocks: dict[int, str] = {}
        """Index of an open block → the type of the block."""
        self._opening = b""
        """The chunk for `messageStart`. It is sent together with the next chunk, so that a failure before the next
        chunk can still be retried."""
        self._answered = False
        self._faulty: FaultyAnswer | None = None
        """The error of an answer without content. It is raised when the usage has arrived, or at the end."""

    def _take(self, parsed: Any) -> bytes:
        if self.ended or self._failure:
            return b""
        written = self._converted(parsed)
        if not self._failure and "messageStart" in parsed:
            self._opening = written
            return b""
        return self._opened_with(written) if written else b""

    def _contents(self, texts: list[str]) -> bytes:
        return self._opened_with(super()._contents(texts))

    def _opened_with(self, written: bytes) -> bytes:
        opening, self._opening = self._opening, b""
        return opening + written

    def _converted(self, parsed: Any) -> bytes:
        try:
            if "type" in parsed:  # an exception, already converted to Anthropic's error event
                return MessagesStream._read(self, _event(parsed))
            ((kind, value),) = parsed.items()
            if kind == "contentBlockDelta" and type(text := value["delta"].get("text")) is str:
                self._answered = self._answered or bool(text)
                return self._chunk({"content": text}) if text else b""
            if kind == "messageStop" and not self._answered and (failure := fault(value.get("stopReason"))):
                self._faulty = failure
                return b""
            written = b"".join([MessagesStream._read(self, _event(each)) for each in self._events(kind, value)])
            return self._end_faulty(self._faulty) if self._faulty and self.ended else written
        except (ValueError, AttributeError, TypeError, LookupError):
            return self._misread()

    def _texts(self, values: list[dict[str, Any]], start: int) -> list[str]:
        texts: list[str] = []
        try:
            for place in range(start, len(values)):
                (value,) = values[place].values()
                text = value["delta"]["text"]
                if type(text) is not str or not text or "contentBlockDelta" not in values[place]:
                    break
                texts.append(text)
        except (LookupError, TypeError, ValueError):
            pass  # the event is another one
        self._answered = self._answered or bool(texts)
        return texts

    def _end_faulty(self, failure: FaultyAnswer) -> bytes:
        """Fail after the usage has arrived. The stream gets a finish reason first, so the reported usage counts as
        complete."""
        self.ended, self.ending, self.finish = False, b"", "stop"
        return self._fail(failure)

    def eof(self) -> None:
        """Called at the end of the stream. Raises the failure that the stream reported. Raises FaultyAnswer if the
        model failed and no usage arrived, and StreamBroken if the stream is incomplete."""
        self._read_rest()
        if self._faulty and not self._failure:
            self._fail(self._faulty)
        super().eof()

    def _misread(self) -> bytes:
        return self._fail(BackendGarbage("The backend sent an event that is not one of Converse's."))

    def _events(self, kind: str, value: dict[str, Any]) -> list[dict[str, Any]]:
        """Anthropic's events for one event of Converse. `kind`, `value`: type and contents of the event. Empty for an
        unknown type."""
        match kind:
            case "messageStart":
                return [{"type": "message_start", "message": self._named}]
            case "contentBlockStart":
                call = value["start"].get("toolUse")
                self._answered = self._answered or bool(call)
                return self._opened(value["contentBlockIndex"], "tool_use", call) if call else []
            case "contentBlockDelta":
                return self._delta(value["contentBlockIndex"], value["delta"])
            case "contentBlockStop":
                index = value["contentBlockIndex"]
                return [{"type": "content_block_stop", "index": index}] if self._blocks.pop(index, "") else []
            case "messageStop":
                return [{"type": "message_delta", "delta": {"stop_reason": stop_reason(value.get("stopReason"))}}]
            case "metadata":
                counted = usage(value.get("usage"), value.get("serviceTier"))
                return [{"type": "message_delta", "delta": {}, "usage": counted}, {"type": "message_stop"}]
        return []

    def _opened(self, index: int, kind: str, given: dict[str, Any]) -> list[dict[str, Any]]:
        """The event that opens a block; empty if the block is already open. Needed because Converse announces only the
        blocks of tool calls.

        `index`, `kind`: index and type of the block. `given`: its first contents.
        """
        if index in self._blocks:
            return []
        self._blocks[index] = kind
        block: dict[str, Any] = {"type": kind}
        if kind == "tool_use":
            block |= {"id": given["toolUseId"], "name": given["name"], "input": {}}
        return [{**_START, "index": index, "content_block": block}]

    def _delta(self, index: int, delta: dict[str, Any]) -> list[dict[str, Any]]:
        if call := delta.get("toolUse"):
            return [_piece(index, "input_json", "partial_json", call["input"])]
        if not (thought := delta.get("reasoningContent")):
            return []
        if "redactedContent" in thought:
            block = {"type": "redacted_thinking", "data": thought["redactedContent"]}
            self._blocks[index] = "redacted_thinking"
            return [{**_START, "index": index, "content_block": block}]
        events = self._opened(index, "thinking", thought)
        if "text" in thought:
            events.append(_piece(index, "thinking", "thinking", thought["text"]))
        if "signature" in thought:
            events.append(_piece(index, "signature", "signature", thought["signature"]))
        return events


def _piece(index: int, kind: str, field: str, text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", field: text}}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
