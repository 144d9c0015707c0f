"""The first difference between two requests that a prompt cache sees."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.context.differences import first_difference

TOOLS = [{"name": "read", "input_schema": {}}, {"name": "write", "input_schema": {}}]
BODY: dict[str, Any] = {
    "tools": TOOLS,
    "system": "You are careful. It is 10:15.",
    "messages": [{"role": "user", "content": "Find the parcel."}],
}
CHAT = {"messages": [{"role": "system", "content": "On 2026-01-31."}, {"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"tools": TOOLS[::-1]}, "The tools are in another order."),
        ({"tools": TOOLS[:1]}, "The tool write is missing."),
        ({"tools": [*TOOLS, {"name": "look"}]}, "The tool look is new."),
        ({"tools": [TOOLS[0], {"name": "write", "input_schema": {"type": "object"}}]}, "definition of the tool write"),
        ({"system": "You are careful. It is 10:16."}, "where it has a time or a date"),
        ({"system": "You are kind. It is 10:15."}, "system prompt changed after 8 characters"),
        ({"messages": [{"role": "user", "content": "Find a parcel."}]}, "message 0 (user) changed after 5 characters"),
        ({"messages": []}, "it was shortened"),
    ],
)
def test_what_changed_first_is_named(now: dict[str, Any], words: str) -> None:
    assert words in first_difference(BODY, BODY | now)


def test_a_session_that_has_only_grown_has_no_difference() -> None:
    marked = {"type": "text", "text": "Hello.", "cache_control": {"type": "ephemeral"}}
    before = BODY | {"messages": [*BODY["messages"], {"role": "assistant", "content": [marked]}]}
    plain = {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
    grown = BODY | {"messages": [*BODY["messages"], plain, {"role": "user", "content": "And then?"}]}
    assert first_difference(before, grown) == ""


def test_a_date_in_the_system_prompt_of_a_chat_is_found() -> None:
    later = {"messages": [{"role": "system", "content": "On 2026-02-01."}, CHAT["messages"][1]]}
    assert "message 0 (system) changed after 9 characters, where it has a time or a date" in first_difference(
        CHAT, later
    )
