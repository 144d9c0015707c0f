"""Chunks put together again."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.openai_chat.assembly import Assembly
from tests.dialects.samples import STOP, chunk, event, text


def assemble(*blocks: bytes) -> Assembly:
    assembly = Assembly()
    for block in blocks:
        assembly.add(block)
    return assembly


def message(*blocks: bytes) -> dict[str, Any]:
    completion = assemble(*blocks, STOP).completion(None)
    assert completion is not None
    return dict(orjson.loads(completion)["choices"][0]["message"])


def call(**fields: Any) -> bytes:
    return chunk({"tool_calls": [fields]})


def test_tool_calls_without_a_number_are_counted() -> None:
    said = message(
        call(id="a", type="function", function={"name": "f", "arguments": "{}"}),
        call(id="b", type="function", function={"name": "g", "arguments": "{}"}),
    )
    assert [one["id"] for one in said["tool_calls"]] == ["a", "b"]


def test_a_name_said_twice_is_one_name_and_arguments_are_joined() -> None:
    said = message(
        call(index=0, id="a", type="function", function={"name": "f", "arguments": ""}, extra={"x": 1}),
        call(index=0, id="a", type="function", function={"name": "f", "arguments": '{"a"'}),
        call(index=0, function={"name": None, "arguments": ":1}"}),
        call(index=1, id="c", type="custom", custom={"name": "grep", "input": "a"}),
        call(index=1, custom={"input": "b"}),
    )
    assert said["content"] is None
    assert said["tool_calls"] == [
        {"id": "a", "type": "function", "extra": {"x": 1}, "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "c", "type": "custom", "custom": {"name": "grep", "input": "ab"}},
    ]


def test_the_old_function_call_is_put_together_too() -> None:
    said = message(
        chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": "{}"}})
    )
    assert said["function_call"] == {"name": "f", "arguments": "{}"}


def test_unknown_fields_grow_as_the_official_client_lets_them() -> None:
    said = message(
        chunk({"audio": {"id": "x", "data": "AA", "transcript": "hel"}, "thinking": "a", "parts": [1], "mood": None}),
        chunk({"audio": {"id": "x", "data": "BB", "transcript": "lo", "expires_at": 7}, "thinking": "b", "parts": [2]}),
        chunk({"audio": None, "provider": {"a": {"b": 1}}}),
        chunk({"provider": {"a": {"c": 2}}, "number": 1}),
        chunk({"number": 2}),
    )
    assert said["audio"] == {"id": "x", "data": "AABB", "transcript": "hello", "expires_at": 7}
    assert (said["thinking"], said["parts"], said["number"], said["mood"]) == ("ab", [1, 2], 2, None)
    assert said["provider"] == {"a": {"b": 1, "c": 2}}


def test_the_first_believable_header_stays() -> None:
    blocks = (chunk(None, id="", model="", created=0), text("a"), chunk({}, "stop", id="c2", system_fingerprint="f"))
    completion = orjson.loads(assemble(*blocks).completion({"prompt_tokens": 1}) or b"")
    assert (completion["id"], completion["model"], completion["created"]) == ("c1", "m", 1)
    assert completion["system_fingerprint"] == "f"
    assert completion["usage"] == {"prompt_tokens": 1}


@pytest.mark.parametrize(
    "odd",
    [
        event([1]),
        event({"choices": [1]}),
        event({"choices": "x"}),
        event({"choices": [{"index": "a", "delta": {}}]}),
        event({"choices": [{"index": [0], "delta": {}}]}),
        event({"choices": [{"delta": "x"}]}),
        event({"choices": [{"delta": {"tool_calls": [{"index": "x"}]}}]}),
        event({"choices": [{"delta": {"tool_calls": "x"}}]}),
        event({"choices": [{"delta": {}, "logprobs": [1]}]}),
        b"data: nonsense\n\n",
    ],
)
def test_an_event_that_cannot_be_understood_spoils_the_plain_body_and_nothing_else(odd: bytes) -> None:
    assembly = assemble(text("a"), odd, text("b"), STOP)
    assert assembly.completion(None) is None
    assert assembly.unreadable == 1
    assert assembly.text() == "ab"
    assert assembly.finish == "stop"


def test_what_is_nested_too_deep_to_be_written_again_is_not_kept() -> None:
    deep = b'data: {"x":' + b"[" * 300 + b"]" * 300 + b',"choices":[]}\n\n'
    assert assemble(text("a"), deep, STOP).completion(None) is None
