"""Writes chat chunks as Anthropic events. Only one block is open at a time, and blocks are written in order."""

from __future__ import annotations

from typing import Any, Protocol

from gateway.dialects.anthropic_messages import events, thinking
from gateway.dialects.openai_chat.message import TEXT_FIELDS, objects
from gateway.dialects.translate.messages_to_chat.answer import (
    call_id,
    ending,
    expected_input,
    opening,
    usage_of,
)
from gateway.dialects.translate.messages_to_chat.calls import Call, Calls
from gateway.dialects.translate.messages_to_chat.tools import long_names
from gateway.domain.body_scan import UNSIGNED
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest


class Form(Protocol):
    """Writes the events as bytes. The default is Anthropic's form."""

    STOP: bytes
    """The last event."""

    def message_start(self, message: dict[str, Any]) -> bytes: ...
    def block_start(self, index: int, block: dict[str, Any]) -> bytes: ...
    def text_delta(self, index: int, text: str) -> bytes: ...
    def text_deltas(self, index: int, texts: list[str]) -> bytes: ...
    def thinking_delta(self, index: int, text: str) -> bytes: ...
    def signature_delta(self, index: int, signature: str) -> bytes: ...
    def input_delta(self, index: int, piece: str) -> bytes: ...
    def block_stop(self, index: int) -> bytes: ...
    def message_delta(self, fields: dict[str, Any], usage: dict[str, Any]) -> bytes: ...


class MessagesWriter:
    """Implements `Writer` for Anthropic messages. Blocks may not interleave, so pieces of other calls wait until the
    open call is complete."""

    def __init__(self, request: CompletionRequest, form: Form = events) -> None:
        self._request, self._form = request, form
        self._shows_thinking = thinking.shown(request.body)
        self._names: dict[str, str] | None = None
        self._begun = False
        self._index = -1
        """Index of the last block."""
        self._open = ""
        """The type of the open block: text, thinking or tool_use. Empty if no block is open."""
        self._calls = Calls()
        self._pieces = 0
        """Number of pieces of text or arguments that were written. This is about the number of tokens."""
        self._late: list[dict[str, Any]] = []
        """Parts of the answer's text that arrived while a call was incomplete. They are written at the end."""
        self._called = self._refused = False
        self._sequence: object = None
        """The stop sequence that ended the answer; None if the backend does not report it."""

    def write(self, chunk: dict[str, Any]) -> bytes:
        out: list[bytes] = []
        if not self._begun:
            self._begun = True
            out.append(self._form.message_start(opening(self._request, chunk)))
        for choice in objects(chunk["choices"])[:1]:
            if type(delta := choice.get("delta")) is dict:
                self._delta(delta, out)
            self._sequence = choice.get("stop_reason") or self._sequence
        return b"".join(out)

    def more(self, texts: list[str]) -> bytes | None:
        if self._open != "text":
            return None
        self._pieces += len(texts)
        return self._form.text_deltas(self._index, texts)

    def _delta(self, delta: dict[str, Any], out: list[bytes]) -> None:
        if self._open == "tool_use" and _says_text(delta) and not self._calls.whole:
            self._late.append({**delta, "tool_calls": None})
        else:
            self._write_delta(delta, out)
        if calls := objects(delta.get("tool_calls")):
            for piece in calls:
                self._calls.add(piece)
            self._write_calls(out)

    def _write_delta(self, delta: dict[str, Any], out: list[bytes]) -> None:
        if self._shows_thinking:
            self._think(delta, out)
        if type(text := delta.get("content")) is str and text:
            self._text(text, out)
        if type(refusal := delta.get("refusal")) is str and refusal:
            self._refused = True
            self._text(refusal, out)

    def _text(self, text: str, out: list[bytes]) -> None:
        self._become("text", {"type": "text", "text": ""}, out)
        out.append(self._form.text_delta(self._index, text))
        self._pieces += 1

    def _think(self, delta: dict[str, Any], out: list[bytes]) -> None:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if type(thought) is str and thought:
            self._become("thinking", {"type": "thinking", "thinking": "", "signature": ""}, out)
            out.append(self._form.thinking_delta(self._index, thought))
            self._pieces += 1
        for block in objects(delta.get("thinking_blocks")):
            if block.get("type") == "redacted_thinking":
                self._begin("", block, out)
                out.append(self._form.block_stop(self._index))
            elif block.get("signature"):
                self._sign(block, out)

    def _sign(self, block: dict[str, Any], out: list[bytes]) -> None:
        """End a thinking block by writing its signature. In most cases, the text of the block was written before, piece
        by piece."""
        if self._open != "thinking":
            self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""}, out)
            if text := block.get("thinking"):
                out.append(self._form.thinking_delta(self._index, text))
        out += (self._form.signature_delta(self._index, block["signature"]), self._form.block_stop(self._index))
        self._open = ""

    def _write_calls(self, out: list[bytes], *, to_the_end: bool = False) -> None:
        """Write the pieces of the current call. If the call is complete, go on with the next call that waits.
        `to_the_end`: whether to write all calls, because the answer has ended."""
        while (call := self._calls.current) is not None:
            if self._open != "tool_use":
                if not call.ready and to_the_end:
                    self._calls.done()
                    continue
                if not call.ready:
                    return
                if call.signature and thinking.returns(self._request.body):
                    self._sign(thinking.carrier(call.signature), out)
                self._begin("tool_use", self._tool_use(call), out)
            for piece in call.take():
                out.append(self._form.input_delta(self._index, piece))
                self._pieces += 1
            if not (to_the_end or (self._calls.waiting and self._calls.whole)):
                return
            self._end_block(out)

    def _tool_use(self, call: Call) -> dict[str, Any]:
        if self._names is None:
            self._names = long_names(self._request.body)
        self._called = True
        value = call.id or call_id(self._request, call.number)
        return {"type": "tool_use", "id": value, "name": self._names.get(call.name, call.name), "input": {}}

    def _become(self, kind: str, block: dict[str, Any], out: list[bytes]) -> None:
        if self._open != kind:
            self._begin(kind, block, out)

    def _begin(self, kind: str, block: dict[str, Any], out: list[bytes]) -> None:
        self._end_block(out)
        self._index += 1
        self._open = kind
        out.append(self._form.block_start(self._index, block))

    def _end_block(self, out: list[bytes]) -> None:
        if self._open == "thinking":
            out.append(self._form.signature_delta(self._index, UNSIGNED))
        elif self._open == "tool_use":
            self._calls.done()
        if self._open:
            out.append(self._form.block_stop(self._index))
        self._open = ""

    def end(self, finish: str, usage: Usage | None) -> bytes:
        out: list[bytes] = []
        if not self._begun:
            out.append(self._form.message_start(opening(self._request, {})))
        self._write_calls(out, to_the_end=True)
        for delta in self._late:
            self._write_delta(delta, out)
        self._end_block(out)
        counted = usage or Usage(input_tokens=expected_input(self._request), output_tokens=self._pieces)
        why = {"finish_reason": finish, "stop_reason": self._sequence}
        last = ending(self._request, why, calls=self._called, refused=self._refused)
        out += (self._form.message_delta(last, usage_of(counted)), self._form.STOP)
        return b"".join(out)

    def whole(self) -> bytes | None:
        return None


def _says_text(delta: dict[str, Any]) -> bool:
    return any(delta.get(name) for name in (*TEXT_FIELDS, "thinking_blocks"))
