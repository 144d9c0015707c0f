"""The same calls with the same errors, again and again, in each dialect of agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.dialects.tool_loops import repetition
from gateway.domain.request import CompletionRequest, DialectName
from tests.support.requests import request_in, user

Step = tuple[str, str]
"""A command, and its result."""
FAILED = "bash: maek: command not found"
DIALECTS: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages", "openai_responses")


def loop(dialect: DialectName, steps: Sequence[Step | str], **marks: Any) -> CompletionRequest:
    """A conversation of the `steps`; a text is the user's."""
    items: list[dict[str, Any]] = [user("build it")]
    for number, step in enumerate(steps):
        if isinstance(step, str):
            items.append(user(step))
            continue
        id, (command, result) = f"call_{number}", step
        match dialect:
            case "openai_chat":
                function = {"name": "bash", "arguments": f'{{"command": "{command}"}}'}
                calls = [{"id": id, "type": "function", "function": function}]
                items.append({"role": "assistant", "content": None, "tool_calls": calls})
                items.append({"role": "tool", "tool_call_id": id, "content": result})
            case "anthropic_messages":
                called = {"type": "tool_use", "id": id, "name": "bash", "input": {"command": command}}
                given = {"type": "tool_result", "tool_use_id": id, "content": result, **marks}
                items += [{"role": "assistant", "content": [called]}, {"role": "user", "content": [given]}]
            case _:
                arguments = f'{{"command": "{command}"}}'
                items.append({"type": "reasoning", "id": f"rs_{number}", "summary": []})
                items.append({"type": "function_call", "call_id": id, "name": "bash", "arguments": arguments})
                items.append({"type": "function_call_output", "call_id": id, "output": result})
    return request_in(dialect, **{"input" if dialect == "openai_responses" else "messages": items})


def rounds(request: CompletionRequest, most: int = 20) -> int:
    found = repetition(request, most)
    return 0 if found is None else found.rounds


@pytest.mark.parametrize("dialect", DIALECTS)
def test_equal_failures_at_the_end_are_counted(dialect: DialectName) -> None:
    steps: list[Step | str] = [("ls", "a b"), ("make", FAILED), *[("maek", FAILED)] * 4]
    found = repetition(loop(dialect, steps), 20)
    assert found is not None
    assert (found.rounds, found.tool) == (4, "bash")
    assert rounds(loop(dialect, steps), most=3) == 3


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ([], 0),
        ([("maek", FAILED)], 1),
        ([("maek", "all well")] * 5, 0),  # it waits for something
        ([("maek", FAILED)] * 5 + [("maek", "all well")], 0),
        ([("maek", FAILED)] * 5 + ["try make"], 0),  # the user has spoken
        ([("maek", FAILED)] * 5 + ["again", ("maek", FAILED)], 1),
        ([("maek", FAILED), ("maek", "error 2")] * 3, 1),
        ([("maek 1", FAILED), ("maek 2", FAILED)], 1),
    ],
)
def test_what_changes_or_succeeds_is_no_loop(dialect: DialectName, steps: list[Step | str], count: int) -> None:
    assert rounds(loop(dialect, steps)) == count


def test_the_mark_of_the_client_decides_whether_it_failed() -> None:
    words = [("grep error log", "3 errors found in the log: error, error")] * 6
    assert rounds(loop("anthropic_messages", words)) == 6
    assert rounds(loop("anthropic_messages", words, is_error=False)) == 0
    assert rounds(loop("anthropic_messages", [("x", "quiet")] * 6, is_error=True)) == 6


def test_calls_side_by_side_are_one_round_in_any_order() -> None:
    def turn(first: str, second: str) -> list[dict[str, Any]]:
        calls = [{"id": id, "type": "function", "function": {"name": id, "arguments": "{}"}} for id in (first, second)]
        results = [{"role": "tool", "tool_call_id": id, "content": f"{id} failed"} for id in (second, first)]
        return [{"role": "assistant", "tool_calls": calls}, *results]

    messages = [user("go"), *turn("a", "b"), *turn("b", "a"), *turn("a", "b")]
    assert rounds(request_in("openai_chat", messages=messages)) == 3


def test_odd_conversations_are_no_loop() -> None:
    orphan = [user("go"), {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "error"}]}]
    assert rounds(request_in("openai_chat", messages=orphan)) == 0
    request = loop("openai_chat", [("maek", FAILED)] * 3)
    request.body = {"messages": "gone"}
    assert rounds(request) == 0
