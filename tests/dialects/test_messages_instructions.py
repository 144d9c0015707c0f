"""Which messages with tool results hold words of the user's."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.anthropic_messages.turns import read_turns

RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
REMINDER = {"type": "text", "text": "<system-reminder>\nThe file was\nchanged.\n</system-reminder>"}
WORDS = {"type": "text", "text": "Never touch the billing module."}


@pytest.mark.parametrize(
    ("content", "role", "instructs"),
    [
        ([RESULT], "tool", False),
        ([RESULT, WORDS], "user", True),
        ([RESULT, REMINDER], "user", False),
        ([RESULT, {"type": "text", "text": REMINDER["text"] + "\nNever."}], "user", True),
        ([RESULT, REMINDER, WORDS], "user", True),
        ([RESULT, {"type": "text", "text": REMINDER["text"] * 2}], "user", False),
        ([RESULT, {"type": "text", "text": "<system-reminder>" * 10**5}], "user", True),  # a search to the end for each
        ([{**RESULT, "content": [WORDS]}], "tool", False),
        ([WORDS], "user", False),
        ("Never.", "user", False),
    ],
)
def test_text_beside_results_is_the_users_unless_its_agent_put_it_there(
    content: Any, role: str, instructs: bool
) -> None:
    (turn,) = read_turns(None, [{"role": "user", "content": content}])
    assert (turn.role, turn.instructs) == (role, instructs)
