"""A long session of an agent, in each dialect in which old turns are replaced."""

from __future__ import annotations

from typing import Any

from gateway.domain.request import CompletionRequest, Controls
from tests.support.requests import request_in

RULE = "Never touch the billing module, and keep port 8123."
STEPS = 24


def output(number: int) -> str:
    lines = [f"crate {number}-{line} stands in hall {line * 7 % 13} of the yard" for line in range(40)]
    return f"yard/file{number}.txt\n" + "\n".join(lines)


def answer(number: int) -> str:
    return f"I have read file {number}. " + "It lists the crates of the yard, hall by hall, without any total. " * 8


def steps(count: int = STEPS) -> list[tuple[str, str, str]]:
    """(Answer, path of the call, output) of each step."""
    return [(answer(number), f"yard/file{number}.txt", output(number)) for number in range(count)]


def messages(dialect: str, count: int = STEPS, *, first: str = "Count the crates.") -> list[dict[str, Any]]:
    """The history after so many steps. The user speaks once more after the fifth step, and at the end."""
    found: list[dict[str, Any]] = [{"role": "user", "content": first}]
    for number, (text, path, result) in enumerate(steps(count)):
        if number == 5:
            found += [{"role": "assistant", "content": "Shall I go on?"}, {"role": "user", "content": RULE}]
        found += _step(dialect, number, text, path, result)
    found += [{"role": "assistant", "content": "That was all."}, {"role": "user", "content": f"Go on after {count}."}]
    return found


def _step(dialect: str, number: int, text: str, path: str, result: str) -> list[dict[str, Any]]:
    call, arguments = f"call_{number}", f'{{"path":"{path}"}}'
    if dialect == "anthropic_messages":
        use = {"type": "tool_use", "id": call, "name": "zog", "input": {"path": path}}
        back = {"type": "tool_result", "tool_use_id": call, "content": result}
        said = {"role": "assistant", "content": [{"type": "text", "text": text}, use]}
        return [said, {"role": "user", "content": [back]}]
    if dialect == "openai_chat":
        made = {"id": call, "type": "function", "function": {"name": "zog", "arguments": arguments}}
        said = {"role": "assistant", "content": text, "tool_calls": [made]}
        return [said, {"role": "tool", "tool_call_id": call, "content": result}]
    return [
        {"role": "assistant", "content": text},
        {"type": "function_call", "call_id": call, "name": "zog", "arguments": arguments},
        {"type": "function_call_output", "call_id": call, "output": result},
    ]


def asked(
    dialect: str = "anthropic_messages", count: int = STEPS, *, session: str = "s1", untouched: bool = False,
    first: str = "Count the crates.", **fields: Any,
) -> CompletionRequest:  # fmt: skip
    given = "input" if dialect == "openai_responses" else "messages"
    controls = Controls(session=session, untouched=untouched)
    history = messages(dialect, count, first=first)
    return request_in(dialect, controls=controls, **{"model": "claude", given: history, "stream": False, **fields})
