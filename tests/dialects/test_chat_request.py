"""Chat requests: what is read from them, and what is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.openai_chat.dialect import parse
from gateway.dialects.openai_chat.request import MAX_DEPTH
from gateway.domain.request import Controls
from gateway.errors import BadRequest
from tests.dialects.samples import USER
from tests.support.requests import chat_request

PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_the_fields_that_the_gateway_acts_on_are_read_and_the_rest_stays_in_the_body() -> None:
    raw = orjson.dumps(
        {
            "model": "gpt-4o",
            "messages": [USER],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
            "max_completion_tokens": 7,
            "n": 2,
            "invented": {"tomorrow": None},
        }
    )
    controls = Controls(tier="large")
    headers = {b"authorization": b"Bearer tg-x", b"traceparent": b"00-1", b"openai-organization": b"o", b"cookie": b"c"}
    request = parse(raw, "req_9", controls, headers)
    assert request.raw is raw
    assert (request.id, request.dialect, request.model) == ("req_9", "openai_chat", "gpt-4o")
    assert (request.stream, request.wants_usage, request.parallel) == (True, True, 2)
    assert (request.temperature, request.max_output_tokens) == (0.5, 7)
    assert request.body["invented"] == {"tomorrow": None}
    assert request.controls is controls
    assert request.headers == {b"traceparent": b"00-1"}
    assert request.needs == frozenset()


def test_null_says_as_little_as_an_absent_field() -> None:
    nulls = dict.fromkeys(
        ["stream", "stream_options", "n", "temperature", "max_tokens", "tools", "response_format", "logprobs"]
    )
    request = chat_request(**nulls)
    assert (request.stream, request.wants_usage, request.parallel) == (False, False, 1)
    assert (request.max_output_tokens, request.temperature, request.needs) == (None, None, frozenset())


def test_the_old_name_of_the_output_limit_counts_too() -> None:
    assert chat_request(max_tokens=5).max_output_tokens == 5
    assert chat_request(max_tokens=5, max_completion_tokens=6).max_output_tokens == 6


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"tools": [TOOL]}, {"tools"}),
        ({"tools": []}, set()),
        ({"functions": [{"name": "f"}]}, {"tools"}),
        ({"messages": [USER, {"role": "tool", "tool_call_id": "c", "content": "1"}]}, {"tools"}),
        ({"messages": [{"role": "user", "content": [PICTURE]}]}, {"vision"}),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, {"json_schema"}),
        ({"response_format": {"type": "json_object"}}, set()),
        ({"logprobs": True}, {"logprobs"}),
        ({"logprobs": False}, set()),
        ({"reasoning_effort": "high"}, {"reasoning"}),
        ({"reasoning_effort": "none"}, set()),
    ],
)
def test_what_a_request_cannot_do_without_is_seen(fields: dict[str, Any], needs: set[str]) -> None:
    assert chat_request(**fields).needs == needs


def test_turns_carry_text_calls_results_and_images() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = chat_request(
        messages=[
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, PICTURE, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "1"}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "name": "x"},
            {"role": "assistant", "function_call": {"name": "g", "arguments": "{}"}},
            {"role": "function", "name": "g", "content": "2"},
            {"role": "oracle", "content": "?"},
        ]
    ).turns
    assert [turn.role for turn in turns] == [
        *("system", "user", "assistant", "tool"),
        *("assistant", "assistant", "tool", "user"),
    ]
    assert [turn.text for turn in turns] == ["be kind", "a\nb", "", "1", "no", "", "2", "?"]
    assert [turn.index for turn in turns] == list(range(8))
    assert turns[1].images == 1
    assert turns[2].calls == ("c1", "c2")
    assert turns[3].results == ("c1",)
    assert turns[5].calls == turns[6].results == ("function_call:g",)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b'"x"',
        b'{"model":"a","messages":[{"role":"user","content":"hello"}],"temperature":NaN}',
        b'{"model":"a","messages":[{"role":"user","content":"hello"}],"temperature":Infinity}',
        b'{"model":"a","messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"model":"a","messages":[{"role":"user","content":"\xff"}]}',
        b'{"model":"a","messages":[{"role":"user","content":"\n"}]}',
        b'{"model":"a","messages":[{"role":"user","content":"hello"}]} trailing',
        b'\xef\xbb\xbf{"model":"a","messages":[{"role":"user","content":"hello"}]}',
        b"[" * 100_000,
        b'{"model":"a","messages":[{"role":"user","content":"hello"}],"x":' + b"[" * 1000 + b"]" * 1000 + b"}",
        b'{"model":"a","messages":[{"role":"user","content":"hello"}],"x":' + b'{"x":' * 200 + b"1" + b"}" * 201,
    ],
)
def test_a_body_that_is_no_sound_json_object_is_a_bad_request(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        chat_request(raw=raw)


def test_nesting_up_to_the_limit_is_accepted_and_can_be_written_again() -> None:
    raw = b'{"model":"a","messages":[{"role":"user","content":"hello"}],"x":' + b"[" * (MAX_DEPTH - 1)
    request = chat_request(raw=raw + b"]" * (MAX_DEPTH - 1) + b"}")
    assert orjson.dumps(request.body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 4}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages[0]"),
        ({"messages": [USER, {"content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": 1}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages[0].tool_calls"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"n": 1.0}, "n"),
        ({"n": True}, "n"),
        ({"n": 129}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2.5}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"tools": {}}, "tools"),
        ({"functions": "f"}, "functions"),
        ({"response_format": "json"}, "response_format"),
        ({"logprobs": 5}, "logprobs"),
        ({"reasoning_effort": ["low"]}, "reasoning_effort"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        chat_request(**fields)
    assert caught.value.param == param
    assert param in caught.value.message
