"""Bodies of coding agents' sessions: each request repeats the one before and adds a tool call with its result."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import orjson

from loadtests.questions import Shape

AT_A_TIME = 32
"""Sessions that are in progress at any time, each at another point of its course."""
FIRST_BYTES = 20 * 1024
"""Of a session's first body: system prompt and tools."""
_TOOLS = 20
_LINE = "    total = sum(each.amount for each in {name}.entries if each.day == day)  # {number}\n"
_ID = b"9" * 8


def _tool(number: int) -> dict[str, Any]:
    path = {"type": "string", "description": "Absolute path of the file, for example /src/ledger/journal.py."}
    return {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": f"Tool {number}. Reads a file of the project, or changes it, and returns its lines. " * 3,
            "parameters": {"type": "object", "properties": {"path": path}, "required": ["path"]},
        },
    }


def _turn(number: int, size: int) -> bytes:
    """A tool call and its result, of `size` bytes together, as JSON that continues a list of messages."""
    call = {"name": "tool_1", "arguments": f'{{"path": "/src/part_{number}.py"}}'}
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}],
    }
    line = _LINE.format(name=_ID.decode(), number=number)
    result = {"role": "tool", "tool_call_id": f"c{number}", "content": line * (size // len(line))}
    return b"," + orjson.dumps(asked) + b"," + orjson.dumps(result)


class Sessions:
    """Session and turn follow from a question's number: `AT_A_TIME` consecutive numbers belong to as many sessions."""

    def __init__(self, shape: Shape, model: str) -> None:
        self._shape = shape
        system = "You work on the project of session 99999999. Change only what you were asked to change. "
        head = {"model": model, "max_tokens": 512, "stream": True, "stream_options": {"include_usage": True}}
        tools = [_tool(number) for number in range(_TOOLS)]
        opened = orjson.dumps({**head, "tools": tools, "messages": []}).removesuffix(b"]}")
        fill = (FIRST_BYTES - len(opened)) // len(system)
        messages = [{"role": "system", "content": system * fill}, {"role": "user", "content": "Mend the totals."}]
        self._head = opened + orjson.dumps(messages).removeprefix(b"[").removesuffix(b"]")
        step = 2 * (shape.bytes - FIRST_BYTES) // shape.turns
        turns = [_turn(number, step) for number in range(shape.turns - 1)]
        self._ends = list(accumulate(map(len, turns), initial=0))
        self._turns = b"".join(turns)

    def place(self, number: int) -> tuple[int, int]:
        """The session and the turn of question `number`."""
        slot, turns = number % AT_A_TIME, self._shape.turns
        course = number // AT_A_TIME + slot * turns // AT_A_TIME
        return slot + AT_A_TIME * (course // turns), course % turns

    def body(self, number: int) -> bytes:
        """The body of question `number`."""
        session, turn = self.place(number)
        said = (self._head + self._turns[: self._ends[turn]]).replace(_ID, b"%08d" % session)
        shape = self._shape
        mark = f"[[q{number:08d} {shape.kind} {shape.chunks:03d} {shape.base_tokens:05d}]]"
        return b'%b,{"role":"user","content":"%b Go on."}]}' % (said, mark.encode())
