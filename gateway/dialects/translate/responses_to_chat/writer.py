"""Writes a chat stream as a Responses stream: opens and closes items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

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
    """Implements `Writer`. Thinking and text are one item at a time; calls may be open side by side."""

    def __init__(self, request: CompletionRequest, clock: Callable[[], float]) -> None:
        self._request, self._clock = request, clock
        self._events = Events()
        self._ids = Ids(request.id)
        self._begun: Item = {}
        self._known = known_tools(request.body)
        self._reasoning: Reasoning | None = None
        self._message: Message | None = None
        self._calls: dict[int, Call] = {}
        """By the index that chat gives them."""
        self._open: list[Call] = []
        self._unnamed: dict[int, _Beginning] = {}
        self._messages = self._reasonings = 0
        self._whole = b""

    def write(self, chunk: dict[str, Any]) -> bytes:
        said = b"" if self._begun else self._begin(chunk)
        for choice in chunk["choices"]:
            delta = choice.get("delta")
            if not delta or choice.get("index"):
                continue
            if self._message is not None and len(delta) == 1 and "content" in delta and not choice.get("logprobs"):
                said += self._message.text(delta["content"] or "", ())  # most chunks: more of the same text
            else:
                said += self._delta(delta, choice)
        return said

    def end(self, finish: str, usage: Usage | None) -> bytes:
        said = b"" if self._begun else self._begin({})
        status = "incomplete" if finish in INCOMPLETE else "completed"
        for index in list(self._unnamed):
            said += self._name(index, "")
        if not self._events.output:
            said += self._spoken() + self._said().text("", [])
        said += self._hush(status) + self._close_calls(status)
        whole = ended(self._begun, finish, usage, self._events.output, int(self._clock()))
        self._whole = orjson.dumps(whole)
        return said + self._events.event(f"response.{status}", response=orjson.Fragment(self._whole))

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
        said = b""
        thought, blocks = thought_in(delta), delta.get("thinking_blocks") or []
        if thought or blocks:
            said += self._think(thought, blocks)
        if text := delta.get("content"):
            said += self._spoken() + self._said().text(text, logprobs_of(choice) if choice.get("logprobs") else [])
        if refusal := delta.get("refusal"):
            said += self._spoken() + self._said().refuse(refusal)
        for number, call in enumerate(delta.get("tool_calls") or ()):
            said += self._call(call, number)
        return said

    def _think(self, thought: str, blocks: list[Item]) -> bytes:
        said = b""
        if self._reasoning is None:
            said = self._hush("completed")
            self._reasoning = Reasoning(self._events, self._ids.item("rs", self._reasonings))
            self._reasonings += 1
            said += self._reasoning.open()
        if thought:
            said += self._reasoning.text(thought)
        self._reasoning.sign(blocks)
        return said

    def _spoken(self) -> bytes:
        """What has to be said before the next piece of text: usually nothing."""
        if self._message is not None:
            return b""
        said = self._hush("completed")
        self._message = Message(self._events, self._ids.item("msg", self._messages))
        self._messages += 1
        return said + self._message.open()

    def _said(self) -> Message:
        assert self._message is not None
        return self._message

    def _hush(self, status: str) -> bytes:
        """Close what thinks or speaks."""
        said = b""
        if self._reasoning is not None:
            said += self._reasoning.close()
        if self._message is not None:
            said += self._message.close(status)
        self._reasoning = self._message = None
        return said

    def _call(self, given: dict[str, Any], number: int) -> bytes:
        index = given.get("index")
        index = number if type(index) is not int else index
        function = given.get("function") or {}
        arguments = function.get("arguments") or ""
        if (call := self._calls.get(index)) is not None:
            return call.arguments(arguments) if arguments else b""
        beginning = self._unnamed.setdefault(index, _Beginning())
        beginning.call_id = given.get("id") or beginning.call_id
        beginning.arguments += arguments
        name = function.get("name")
        return self._name(index, name) if name else b""

    def _name(self, index: int, name: str) -> bytes:
        """Only with its name can a call be announced."""
        beginning = self._unnamed.pop(index)
        said = self._hush("completed") + self._close_whole()
        tool = self._known.get(name) or Tool(name)
        kind, prefix = (CustomCall, "ctc") if tool.custom else (Call, "fc")
        number = len(self._calls)
        call_id = beginning.call_id or self._ids.item("call", number)
        call = self._calls[index] = kind(self._events, self._ids.item(prefix, number), call_id, tool)
        self._open.append(call)
        said += call.open()
        return said + call.arguments(beginning.arguments) if beginning.arguments else said

    def _close_whole(self) -> bytes:
        """Close the calls that lack nothing, as OpenAI does; others may be in the middle of theirs."""
        whole = [call for call in self._open if call.whole]
        self._open = [call for call in self._open if call not in whole]
        return b"".join(call.close("completed") for call in whole)

    def _close_calls(self, status: str) -> bytes:
        closing, self._open = self._open, []
        return b"".join(call.close(status) for call in closing)


class _Beginning:
    """A call whose name has not come yet."""

    def __init__(self) -> None:
        self.call_id = self.arguments = ""
