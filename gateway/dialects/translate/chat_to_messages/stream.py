"""Translates Anthropic's stream events to chat chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers.upstream_error import broken, find_error
from gateway.dialects.answers.usage import shown
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.dialects.openai_chat.reader import DONE, ChunkMaker
from gateway.dialects.streams import sse
from gateway.dialects.translate.chat_to_messages.reply import (
    chat_usage,
    finish_of,
    refused_because,
    returnable_thinking,
    stopped_at,
)
from gateway.dialects.translate.chat_to_messages.run import DeltaRun
from gateway.domain.money.usage import Usage
from gateway.errors import BackendError, BackendGarbage

_FIELDS = {"text": "content", "thinking": "reasoning_content"}
"""Type of a block → field of the chat delta. Signatures are sent together with their thinking block. Citations and the
results of server tools are dropped."""


class MessagesStream(ChunkMaker):
    """Implements `StreamReader` from Anthropic messages to OpenAI chat. The event `message_stop` becomes `[DONE]`.
    `usage` is None until the final counts arrive."""

    def __init__(self, *, wants_usage: bool, created: int) -> None:
        shared = {"id": "", "object": "chat.completion.chunk", "created": created, "model": ""}
        super().__init__(shared, wants_usage=wants_usage)
        self.confidence: float | None = None
        self._raw_usage: dict[str, Any] = {}
        self._open: dict[int, _Call | _Thought] = {}
        """Index of a block → the open tool call or thinking block."""
        self._calls = self._thoughts = 0
        self._run: DeltaRun | None = None
        self._readers: dict[str, Callable[[dict[str, Any], bytes], bytes]] = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "error": self._error,
        }

    @property
    def reported(self) -> Usage | None:
        return self.usage or messages_usage(self._raw_usage)

    def feed(self, data: bytes) -> bytes:
        if self._run is not None and self._framer.empty and (chunk := self._run.chunk_for(data)) is not None:
            self._transcript.keep(chunk)
            return chunk
        return self._feed(data)

    def _read(self, event: bytes) -> bytes:
        if self._run is not None and (chunk := self._run.chunk_for(event)) is not None:
            return chunk
        data = sse.payload(event)
        if not data or self.ended or self._failure:
            return b""
        try:
            parsed = orjson.loads(data)
            read = self._readers.get(parsed["type"])
            return read(parsed, event) if read else b""
        except (ValueError, AttributeError, TypeError, KeyError):
            return self._fail(BackendGarbage("The backend sent an event that is not one of Anthropic's."))

    def _read_many(self, block: bytes, at: int) -> tuple[int, bytes]:
        return (at, b"") if self._run is None else self._run.chunks_for(block, at)

    def _fail(self, failure: BackendError) -> bytes:
        self._failure, self._run = failure, None
        return b""

    def _message_start(self, parsed: dict[str, Any], event: bytes) -> bytes:
        message = parsed["message"]
        self._shared |= {"id": message.get("id") or "", "model": message.get("model") or ""}
        self._count(message.get("usage"))
        return self._chunk({"content": None, "refusal": None})  # the answer may consist only of calls

    def _block_start(self, parsed: dict[str, Any], event: bytes) -> bytes:
        block, index = parsed["content_block"], parsed["index"]
        kind = block["type"]
        if kind == "tool_use":
            call = self._open[index] = _Call(self._calls, _input(event) if block.get("input") else b"{}")
            self._calls += 1
            function = {"name": block["name"], "arguments": ""}
            opening = {"index": call.number, "id": block["id"], "type": "function", "function": function}
            return self._chunk({"tool_calls": [opening]})
        if kind == "thinking":
            thought = self._open[index] = _Thought(block.get("signature") or "")
            return self._say(event, kind, block.get(kind), thought.pieces)
        return self._thought(block) if kind == "redacted_thinking" else self._say(event, kind, block.get(kind))

    def _block_delta(self, parsed: dict[str, Any], event: bytes) -> bytes:
        delta = parsed["delta"]
        kind, block = delta["type"].removesuffix("_delta"), self._open.get(parsed["index"])
        if kind == "input_json":
            return self._argue(event, block, delta["partial_json"]) if type(block) is _Call else b""
        if type(block) is not _Thought:
            return self._say(event, kind, delta.get(kind))
        if kind == "signature":
            block.signature += delta[kind]
        return self._say(event, kind, delta.get(kind), block.pieces)

    def _say(self, event: bytes, kind: str, text: Any, kept: list[bytes] | None = None) -> bytes:
        field = _FIELDS.get(kind)
        if not field or not text:
            return b""
        if kept is not None:
            kept.append(orjson.dumps(text)[1:-1])
        return self._repeated(event, kind, {field: text}, field, text, kept)

    def _argue(self, event: bytes, call: _Call, piece: str) -> bytes:
        if not piece:
            return b""
        call.has_arguments = True
        return self._repeated(event, "partial_json", _arguments(call.number, piece), "arguments", piece)

    def _repeated(
        self, event: bytes, key: str, delta: dict[str, Any], field: str, text: str, kept: list[bytes] | None = None
    ) -> bytes:
        """Write the chunk for `event`. Later events that differ from `event` only in their text are then translated
        without parsing. The answer's first chunk is an exception, because this chunk also contains the role.

        `text`: the event's text. `key`: the field of the text in the event. `delta`: the delta of the chunk. `field`:
        the field of the text in the delta. `kept`: a list to which the texts of later events are appended."""
        first = not self._begun
        chunk = self._chunk(delta)
        self._run = None if first else DeltaRun.after(event, key, chunk, field, text, kept)
        return chunk

    def _block_stop(self, parsed: dict[str, Any], event: bytes) -> bytes:
        """Close a block. If the block is a call whose arguments were not streamed, the arguments are sent now. They
        come from the block's first event."""
        self._run = None
        block = self._open.pop(parsed["index"], None)
        if type(block) is _Thought:
            return self._thought(block.whole())
        if type(block) is not _Call or block.has_arguments:
            return b""
        return self._chunk(_arguments(block.number, block.initial_input.decode()))

    def _thought(self, block: dict[str, Any]) -> bytes:
        """The chat event with a whole thinking block. The client can send the block back later in this form. Each block
        has its own index, because OpenAI's clients merge items with equal indexes."""
        kept = returnable_thinking(block)
        if kept is None:
            return b""
        numbered = {**kept, "index": self._thoughts} if self._thoughts else kept
        self._thoughts += 1
        self._transcript.silent += 1
        return self._chunk({"thinking_blocks": [numbered]})

    def _message_delta(self, parsed: dict[str, Any], event: bytes) -> bytes:
        if type(parsed.get("usage")) is dict:
            self._count(parsed["usage"])
            self.usage = messages_usage(self._raw_usage)
        delta = parsed["delta"]
        finish = finish_of(delta.get("stop_reason"))
        if not finish:
            return b""
        self.finish = finish
        if refusal := refused_because(delta):
            return self._chunk({"refusal": refusal}, finish)
        self._transcript.silent += 1
        return self._chunk({}, finish, **stopped_at(delta))

    def _count(self, usage: Any) -> None:
        """Merge a usage object into the usage so far. The counts in `usage` are cumulative, and a later event may omit
        counts that did not change."""
        if type(usage) is dict:
            self._raw_usage |= {name: value for name, value in usage.items() if value is not None}

    def _message_stop(self, parsed: dict[str, Any], event: bytes) -> bytes:
        self.ended, self._run = True, None
        self.ending = DONE
        self._chat_usage = chat_usage(usage) if (usage := shown(self.usage)) else None
        return self._usage_chunk()

    def _error(self, parsed: dict[str, Any], event: bytes) -> bytes:
        self._count(parsed.get("usage"))
        return self._fail(broken(find_error(parsed)))


class _Call:
    """An open tool call: its index among the calls, and the input in its first event."""

    def __init__(self, number: int, initial_input: bytes) -> None:
        self.number = number
        self.initial_input = initial_input
        self.has_arguments = False


class _Thought:
    """An open thinking block. Each piece of its text is stored as the content of a JSON string."""

    def __init__(self, signature: str) -> None:
        self.pieces: list[bytes] = []
        self.signature = signature

    def whole(self) -> dict[str, Any]:
        text = orjson.loads(b'"%b"' % b"".join(self.pieces))
        return {"type": "thinking", "thinking": text, "signature": self.signature}


def _arguments(number: int, piece: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}


def _input(event: bytes) -> bytes:
    """The input in the first event of a call, as its original bytes."""
    data = sse.payload(event)
    block, _ = json_splice.find(data, "content_block")[-1]
    start, end = [span for name, span in json_splice.members(data, block) if name == "input"][-1]
    return data[start:end]
