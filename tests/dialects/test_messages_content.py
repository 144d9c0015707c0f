"""Conversations of OpenAI's as Anthropic's turns: order, thoughts, marks, what may not be empty."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import BadRequest
from tests.dialects.over_anthropic import sent, wire
from tests.dialects.samples import USER
from tests.support.requests import chat_request

MARK = {"type": "ephemeral", "ttl": "1h"}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "eHg="}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def call(call_id: str, arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}, **more}


def use(call_id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": given}


def result(call_id: str, content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def turns(*messages: dict[str, Any]) -> Any:
    return sent(messages=list(messages))["messages"]


def assistant(content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def test_thoughts_come_first_and_only_those_that_anthropic_signed() -> None:
    unsigned = {"type": "thinking", "thinking": "by another model", "signature": ""}
    said = assistant(
        "Let me look.",
        reasoning_content="Hm. by another model",
        thinking_blocks=[SIGNED, unsigned, {**REDACTED, "index": 1}, {"type": "other"}, "x"],
        tool_calls=[call("c1", '{"city":"Bilbao"}')],
    )
    answer = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
    assert turns(USER, said, answer)[1]["content"] == [
        SIGNED, REDACTED, text("Let me look."), use("c1", city="Bilbao"),
    ]  # fmt: skip


def test_thoughts_among_the_parts_of_a_message_are_kept_where_they_are() -> None:
    parts = [SIGNED, text("a"), REDACTED, {"type": "thinking", "thinking": "b"}, text("c")]
    assert turns(USER, assistant(parts), USER)[1]["content"] == [SIGNED, text("a"), REDACTED, text("c")]


def test_unsigned_reasoning_alone_leaves_nothing_behind() -> None:
    assert turns(USER, assistant(reasoning_content="hm"), USER) == [
        {"role": "user", "content": [text("hello"), text("hello")]}
    ]


def test_results_stand_before_what_was_said_meanwhile_in_the_order_in_which_they_came() -> None:
    calls = assistant(tool_calls=[call("a"), call("b")])
    meanwhile = {"role": "user", "content": "hurry"}
    first, second = ({"role": "tool", "tool_call_id": name, "content": name} for name in "ba")
    system = {"role": "system", "content": "Be brief."}
    assert turns(USER, calls, first, meanwhile, system, second)[2]["content"] == [
        result("b", "b"), result("a", "a"), text("hurry"),
    ]  # fmt: skip


def test_a_result_may_hold_images_and_nothing_at_all() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen = {"role": "tool", "tool_call_id": "a", "content": [text("seen", cache_control=MARK), image]}
    empty = {"role": "tool", "tool_call_id": "b", "content": None, "cache_control": MARK}
    assert turns(USER, assistant(tool_calls=[call("a"), call("b")]), seen, empty)[2]["content"] == [
        result(
            "a",
            [
                text("seen", cache_control=MARK),
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            ],
        ),
        {**result("b", []), "cache_control": MARK},
    ]


def test_cache_marks_of_messages_parts_and_calls_are_kept() -> None:
    body = sent(
        messages=[
            {"role": "system", "content": "Be brief.", "cache_control": MARK},
            {"role": "user", "content": [text("a"), text("b", prompt_cache_breakpoint={"mode": "explicit"})]},
            assistant("c", tool_calls=[call("x", cache_control=MARK)]),
            {"role": "tool", "tool_call_id": "x", "content": "d"},
            {"role": "user", "content": "e", "cache_control": MARK},
        ]
    )
    assert body["system"] == [text("Be brief.", cache_control=MARK)]
    user, said, last = (turn["content"] for turn in body["messages"])
    assert user == [text("a"), text("b", cache_control={"type": "ephemeral"})]
    assert said == [text("c"), {**use("x"), "cache_control": MARK}]
    assert last == [result("x", "d"), text("e", cache_control=MARK)]


@pytest.mark.parametrize(
    ("messages", "system", "said"),
    [
        ([USER, assistant("ok"), {"role": "system", "content": "Now stop."}], None, ["user", "assistant", "user"]),
        (
            [{"role": "system", "content": "A"}, USER, assistant("ok"), {"role": "developer", "content": "B"}],
            "A",
            ["user", "assistant", "user"],
        ),
        ([USER, {"role": "system", "content": "A"}, USER], "A", ["user"]),
        ([USER, assistant("ok"), {"role": "system", "content": "A"}, USER], "A", ["user", "assistant", "user"]),
    ],
)
def test_a_system_message_that_has_the_last_word_keeps_it(
    messages: list[dict[str, Any]], system: str | None, said: list[str]
) -> None:
    body = sent(messages=messages)
    assert body.get("system") == system
    assert [turn["role"] for turn in body["messages"]] == said


def test_an_answer_that_has_begun_may_not_end_in_white_space() -> None:
    assert turns(USER, assistant("The answer is (\n "))[-1] == {"role": "assistant", "content": "The answer is ("}
    assert turns(USER, assistant("a "), USER)[1]["content"] == "a "


def test_texts_without_a_visible_character_are_left_out() -> None:
    assert turns(USER, assistant(" \n"), {"role": "user", "content": [text(""), text("a")]}, assistant("")) == [
        {"role": "user", "content": [text("hello"), text("a")]}
    ]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "user", "content": ""}], "messages[0].content"),
        ([USER, assistant("a"), {"role": "user", "content": " "}], "messages[2].content"),
        ([USER, assistant(audio={"id": "a"})], "messages[1].audio"),
        (
            [USER, assistant(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "c", "input": "x"}}])],
            "messages[1].tool_calls[0]",
        ),
        ([USER, assistant(tool_calls=[call("c", "[1]")])], "messages[1].tool_calls[0].function.arguments"),
        ([USER, assistant(tool_calls=[call("c", 7)])], "messages[1].tool_calls[0].function.arguments"),  # type: ignore[arg-type]
        ([{"role": "tool", "tool_call_id": "c", "content": [{"type": "input_audio"}]}], "messages[0].content[0]"),
    ],
)
def test_what_cannot_be_said_is_named(messages: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        wire.body(chat_request(messages=messages), "claude", None)
    assert caught.value.param == param


def test_a_refusal_is_something_that_was_said() -> None:
    assert turns(USER, assistant(refusal="I won't."), USER)[1] == {"role": "assistant", "content": "I won't."}


def test_names_of_participants_are_a_hint_that_is_not_passed_on() -> None:
    assert turns({**USER, "name": "alice"}) == [USER]


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('{"n": 123456789012345678901234567890, "x": 1.50, "y": 1e3}',) * 2,
        ('  {"z":1,"a":2,"z":3}\n', '{"z":1,"a":2,"z":3}'),
        ('{"e":"\\u00e9 é"}',) * 2,
        ("  ", "{}"),
    ],
)
def test_arguments_are_sent_as_they_were_written(written: str, kept: str) -> None:
    body = wire.body(chat_request(messages=[USER, assistant(tool_calls=[call("c", written)])]), "claude", None)
    assert b'"input":' + kept.encode() + b"}" in body


def test_calls_shown_without_tools_bring_their_names_so_that_they_are_understood() -> None:
    body = sent(messages=[USER, assistant(tool_calls=[call("a"), call("b")])])
    assert [tool["name"] for tool in body["tools"]] == ["look"]
    assert body["tool_choice"] == {"type": "none"}
