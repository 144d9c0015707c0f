"""Writes a chat stream as a Responses stream: opens and closes output items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from gateway.dialects.anthropic_messages.thinking import carrier
from gateway.dialects.openai_chat.message import signature_of
from gateway.dialects.openai_responses.events import Call, CustomCall, Events, Message, Reasoning
from gateway.dialects.openai_responses.response_object import (
    INCOMPLETE,
    MOST_KEPT_BYTES,
    Ids,
    Item,
    ended,
    logprobs_of,
    response,
    thought_in,
)
from gateway.dialects.openai_responses.tools import Tool, known_tools
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest


class ResponsesWriter:
    """Implements `Writer` for OpenAI Responses. Only one item with thinking or text is open at a time. Several calls
    may be open at a time."""

    def __init__(self, request: CompletionRequest, clock: Callable[[], float]) -> None:
        self._request, self._clock = request, clock
        self._events = Events()
        self._ids = Ids(request.id)
        self._begun: Item = {}
        self._known = known_tools(request.body)
        self._reasoning: Reasoning | None = None
        self._message: Message | None = None
        self._calls: dict[int, Call] = {}
        """Index of a call in chat → the call, which may be open or closed."""
        self._open: list[Call] = []
        self._unnamed: dict[int, _Beginning] = {}
        self._messages = self._reasonings = 0
        self._whole = b""

    def write(self, chunk: dict[str, Any]) -> bytes:
        written = b"" if self._begun else self._begin(chunk)
        for choice in chunk["choices"]:
            delta = choice.get("delta")
            if not delta or choice.get("index"):
                continue
            if self._message is not None and len(delta) == 1 and "content" in delta and not choice.get("logprobs"):
                # the most frequent chunk has only more text for the same item
                written += self._message.text(delta["content"] or "", ())
            else:
                written += self._delta(delta, choice)
        return written

    def more(self, texts: list[str]) -> bytes | None:
        return None if self._message is None else self._message.more(texts)

    def end(self, finish: str, usage: Usage | None) -> bytes:
        written = b"" if self._begun else self._begin({})
        status = "incomplete" if finish in INCOMPLETE else "completed"
        for index in list(self._unnamed):
            written += self._name(index, "")
        if not self._events.output:
            written += self._open_message() + self._current_message().text("", [])
        written += self._close_text(status) + self._close_calls(status)
        whole = ended(self._begun, finish, usage, self._events.output, int(self._clock()))
        self._whole = orjson.dumps(whole)
        return written + self._events.event(f"response.{status}", response=orjson.Fragment(self._whole))

    def whole(self) -> bytes | None:
        return self._whole if 0 < len(self._whole) <= MOST_KEPT_BYTES else None

    def _begin(self, chunk: dict[str, Any]) -> bytes:
        created = chunk.get("created")
        self._begun = response(
            self._request,
            response_id=self._ids.response,
            created=created if type(created) is int and created > 0 else int(self._clock()),
            model=chunk.get("model") or self._request.model,
            status="in_progress",
            output=[],
        )
        return b"".join(
            self._events.event(f"response.{what}", response=self._begun) for what in ("created", "in_progress")
        )

    def _delta(self, delta: dict[str, Any], choice: dict[str, Any]) -> bytes:
        written = b""
        thought, blocks = thought_in(delta), delta.get("thinking_blocks") or []
        if thought or blocks:
            written += self._think(thought, blocks)
        if text := delta.get("content"):
            written += self._open_message() + self._current_message().text(
                text, logprobs_of(choice) if choice.get("logprobs") else []
            )
        if refusal := delta.get("refusal"):
            written += self._open_message() + self._current_message().refuse(refusal)
        for number, call in enumerate(delta.get("tool_calls") or ()):
            written += self._call(call, number)
        return written

    def _think(self, thought: str, blocks: list[Item]) -> bytes:
        written = b""
        if self._reasoning is None:
            written = self._close_text("completed")
            self._reasoning = Reasoning(self._events, self._ids.item("rs", self._reasonings))
            self._reasonings += 1
            written += self._reasoning.open()
        if thought:
            written += self._reasoning.text(thought)
        self._reasoning.sign(blocks)
        return written

    def _open_message(self) -> bytes:
        """Open a message item if no message item is open. Returns the events for the new item; empty if a message item
        was open."""
        if self._message is not None:
            return b""
        written = self._close_text("completed")
        self._message = Message(self._events, self._ids.item("msg", self._messages))
        self._messages += 1
        return written + self._message.open()

    def _current_message(self) -> Message:
        assert self._message is not None
        return self._message

    def _close_text(self, status: str) -> bytes:
        """Close the open reasoning or message item."""
        written = b""
        if self._reasoning is not None:
            written += self._reasoning.close()
        if self._message is not None:
            written += self._message.close(status)
        self._reasoning = self._message = None
        return written

    def _call(self, value: dict[str, Any], number: int) -> bytes:
        index = value.get("index")
        index = number if type(index) is not int else index
        function = value.get("function") or {}
        arguments = function.get("arguments") or ""
        if (call := self._calls.get(index)) is not None:
            return call.arguments(arguments) if arguments else b""
        beginning = self._unnamed.setdefault(index, _Beginning())
        beginning.call_id = value.get("id") or beginning.call_id
        beginning.signature = signature_of(value) or beginning.signature
        beginning.arguments += arguments
        name = function.get("name")
        return self._name(index, name) if name else b""

    def _name(self, index: int, name: str) -> bytes:
        """Write the event that announces a call, because the name of the call is known now. `index`: index of the call
        in chat."""
        beginning = self._unnamed.pop(index)
        written = self._close_complete()
        if beginning.signature:
            written += self._think("", [carrier(beginning.signature)])
        written += self._close_text("completed")
        tool = self._known.get(name) or Tool(name)
        kind, prefix = (CustomCall, "ctc") if tool.custom else (Call, "fc")
        number = len(self._calls)
        call_id = beginning.call_id or self._ids.item("call", number)
        call = self._calls[index] = kind(self._events, self._ids.item(prefix, number), call_id, tool)
        self._open.append(call)
        written += call.open()
        return written + call.arguments(beginning.arguments) if beginning.arguments else written

    def _close_complete(self) -> bytes:
        """Close the calls whose arguments are complete, as OpenAI does. The other calls stay open."""
        whole = [call for call in self._open if call.whole]
        self._open = [call for call in self._open if call not in whole]
        return b"".join(call.close("completed") for call in whole)

    def _close_calls(self, status: str) -> bytes:
        closing, self._open = self._open, []
        return b"".join(call.close(status) for call in closing)


class _Beginning:
    """A call whose name has not arrived yet."""

    def __init__(self) -> None:
        self.call_id = self.arguments = self.signature = ""
