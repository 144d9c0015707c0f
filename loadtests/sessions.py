"""Bodies of coding agents' sessions: each request repeats the one before and adds a tool call with its result."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import orjson

from loadtests.questions import Dialect, Shape

FIRST_BYTES = 20 * 1024
"""Of a session's first body: system prompt and tools."""
_TOOLS = 20
_LINE = "    total = sum(each.amount for each in {name}.entries if each.day == day)  # {number}\n"
_SYSTEM = "You work on the project of session 99999999. Change only what you were asked to change. "
_ASKED = "Mend the totals."
_ID = b"9" * 8
_CACHED = {"cache_control": {"type": "ephemeral"}}
CONVERSATION: dict[Dialect, str] = {"chat": "messages", "messages": "messages", "responses": "input"}
"""Dialect → the field that grows."""


def _tool(dialect: Dialect, number: int) -> dict[str, Any]:
    path = {"type": "string", "description": "Absolute path of the file, for example /src/ledger/journal.py."}
    schema = {"type": "object", "properties": {"path": path}, "required": ["path"]}
    text = f"Tool {number}. Reads a file of the project, or changes it, and returns its lines. " * 3
    named = {"name": f"tool_{number}", "description": text}
    if dialect == "messages":
        return {**named, "input_schema": schema}
    if dialect == "responses":
        return {"type": "function", **named, "parameters": schema, "strict": False}
    return {"type": "function", "function": {**named, "parameters": schema}}


def _said(dialect: Dialect, text: str) -> dict[str, Any]:
    """What the user says. Of Anthropic's dialect with a prompt-cache mark, which so moves with every request."""
    if dialect == "messages":
        return {"role": "user", "content": [{"type": "text", "text": text, **_CACHED}]}
    if dialect == "responses":
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {"role": "user", "content": text}


def _first(dialect: Dialect, model: str, system: str) -> dict[str, Any]:
    """A session's first request, without what the user says last; the conversation is its second field."""
    conversation: list[Any] = [_said(dialect, _ASKED)]
    more: dict[str, Any] = {"tools": [_tool(dialect, number) for number in range(_TOOLS)], "stream": True}
    keyed = {"prompt_cache_key": f"session-{_ID.decode()}"}
    if dialect == "messages":
        conversation[0]["content"][0].pop("cache_control")
        about = {"system": [{"type": "text", "text": system, **_CACHED}], "max_tokens": 512}
        more |= {**about, "metadata": {"user_id": f"session_{_ID.decode()}"}}
    elif dialect == "responses":
        more |= {"instructions": system, "max_output_tokens": 512, "store": False, **keyed}
    else:
        conversation.insert(0, {"role": "system", "content": system})
        more |= {"max_tokens": 512, "stream_options": {"include_usage": True}, **keyed}
    return {"model": model, CONVERSATION[dialect]: conversation, **more}


def _chat_turn(name: str, path: dict[str, str], result: str) -> list[dict[str, Any]]:
    call = {"name": "tool_1", "arguments": orjson.dumps(path).decode()}
    calls = [{"id": name, "type": "function", "function": call}]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    return [asked, {"role": "tool", "tool_call_id": name, "content": result}]


def _messages_turn(name: str, path: dict[str, str], result: str) -> list[dict[str, Any]]:
    asked = {"role": "assistant", "content": [{"type": "tool_use", "id": name, "name": "tool_1", "input": path}]}
    return [asked, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": result}]}]


def _responses_turn(name: str, path: dict[str, str], result: str) -> list[dict[str, Any]]:
    call = {"type": "function_call", "call_id": name, "name": "tool_1", "arguments": orjson.dumps(path).decode()}
    return [call, {"type": "function_call_output", "call_id": name, "output": result}]


_TURNS: dict[Dialect, Callable[[str, dict[str, str], str], list[dict[str, Any]]]] = {
    "chat": _chat_turn,
    "messages": _messages_turn,
    "responses": _responses_turn,
}


def _turn(dialect: Dialect, number: int, size: int) -> bytes:
    """A tool call and its result, of `size` bytes together, as JSON that continues a conversation."""
    line = _LINE.format(name=_ID.decode(), number=number)
    items = _TURNS[dialect](f"c{number}", {"path": f"/src/part_{number}.py"}, line * (size // len(line)))
    return b"," + orjson.dumps(items)[1:-1]


class Sessions:
    """Session and turn follow from a question's number: `at_a_time` consecutive numbers belong to as many sessions."""

    def __init__(self, shape: Shape, model: str) -> None:
        self._shape, dialect = shape, shape.dialect
        fill = (FIRST_BYTES - len(orjson.dumps(_first(dialect, model, "")))) // len(_SYSTEM)
        first = _first(dialect, model, _SYSTEM * fill)
        conversation = orjson.dumps(first[CONVERSATION[dialect]])[:-1]
        before, _, self._tail = orjson.dumps(first).partition(conversation)
        self._head = before + conversation
        step = 2 * (shape.bytes - FIRST_BYTES) // shape.turns
        turns = [_turn(dialect, number, step) for number in range(shape.turns - 1)]
        self._ends = list(accumulate(map(len, turns), initial=0))
        self._turns = b"".join(turns)

    def place(self, number: int) -> tuple[int, int]:
        """The session and the turn of question `number`."""
        at_a_time, turns = self._shape.at_a_time, self._shape.turns
        slot = number % at_a_time
        course = number // at_a_time + slot * turns // at_a_time
        return slot + at_a_time * (course // turns), course % turns

    def body(self, number: int) -> bytes:
        """The body of question `number`."""
        session, turn = self.place(number)
        shape = self._shape
        mark = f"[[q{number:08d} {shape.kind} {shape.chunks:03d} {shape.base_tokens:05d}]]"
        last = orjson.dumps(_said(shape.dialect, f"{mark} Go on."))
        own = b"%08d" % session
        said, tail = (self._head + self._turns[: self._ends[turn]]).replace(_ID, own), self._tail.replace(_ID, own)
        return b"%b,%b%b" % (said, last, tail)
