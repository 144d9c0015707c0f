"""OpenAI chat clients over Anthropic backends: what is sent."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.openai_chat.dialect import parse
from gateway.domain.request import Controls
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BadRequest
from tests.dialects.over_anthropic import sent, wire
from tests.dialects.samples import USER, streaming
from tests.support.requests import chat_request

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Looks", "parameters": SCHEMA}}
WEATHER = {"name": "weather", "description": "Looks", "input_schema": SCHEMA}


def call(call_id: str, arguments: str = '{"city":"Bilbao"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def test_the_smallest_request() -> None:
    assert sent() == {"model": "claude", "max_tokens": 4096, "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(
    ("given", "told", "limit"), [({}, 99, 99), ({"max_tokens": 5}, None, 5), ({"max_completion_tokens": 6}, 7, 7)]
)
def test_an_output_limit_is_always_sent(given: dict[str, Any], told: int | None, limit: int) -> None:
    body = orjson.loads(wire.body(chat_request(**given), "claude", None, max_output_tokens=told))
    assert body["max_tokens"] == limit
    assert "max_completion_tokens" not in body


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"temperature": 0.3}, {"temperature": 0.3}),
        ({"temperature": 1.7}, {"temperature": 1.0}),
        ({"top_p": 0.9}, {"top_p": 0.9}),
        ({"stop": "END"}, {"stop_sequences": ["END"]}),
        ({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}),
        ({"user": "u1"}, {"metadata": {"user_id": "u1"}}),
        ({"user": "a@b.example"}, {}),
        ({"user": "@" * 10**6}, {"metadata": {"user_id": "@" * 10**6}}),  # no search to the end for each character
        ({"safety_identifier": "s", "user": "u1"}, {"metadata": {"user_id": "s"}}),
        ({"reasoning_effort": "minimal"}, {"output_config": {"effort": "low"}}),
        ({"reasoning_effort": "high"}, {"output_config": {"effort": "high"}}),
        ({"reasoning_effort": "none"}, {}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            {"output_config": {"format": {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}}}},
        ),
        ({"seed": 1, "presence_penalty": 1, "logit_bias": {"5": 1}, "store": True, "metadata": {"a": "b"}}, {}),
        ({"n": 1, "logprobs": False, "tools": None, "stop": None}, {}),
        ({"thinking": {"type": "adaptive"}, "invented": 5}, {"thinking": {"type": "adaptive"}, "invented": 5}),
        ({"cache_control": {"type": "ephemeral"}, "top_k": 5}, {"cache_control": {"type": "ephemeral"}, "top_k": 5}),
    ],
)
def test_parameters_are_translated_ignored_or_carried(fields: dict[str, Any], said: dict[str, Any]) -> None:
    assert sent(strange=("invented",), **fields) == {**sent(), **said}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, {"tools": [WEATHER]}),
        ({"tool_choice": "auto"}, {"tools": [WEATHER], "tool_choice": {"type": "auto"}}),
        ({"tool_choice": "required"}, {"tools": [WEATHER], "tool_choice": {"type": "any"}}),
        (
            {"tool_choice": "none", "parallel_tool_calls": False},
            {"tools": [WEATHER], "tool_choice": {"type": "none"}},
        ),
        (
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
            {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "weather"}},
        ),
        (
            {"parallel_tool_calls": False},
            {"tools": [WEATHER], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        ),
        (
            {
                "tools": [TOOL, {"type": "function", "function": {"name": "time", "strict": True}}],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [{"type": "function", "name": "time"}]},
                },
            },
            {
                "tools": [{"name": "time", "input_schema": {"type": "object", "properties": {}}, "strict": True}],
                "tool_choice": {"type": "any"},
            },
        ),
        (
            {"tools": [{**TOOL, "cache_control": {"type": "ephemeral"}}, {"type": "bash_20250124", "name": "bash"}]},
            {"tools": [{**WEATHER, "cache_control": {"type": "ephemeral"}}, {"type": "bash_20250124", "name": "bash"}]},
        ),
        (
            {"tools": None, "functions": [TOOL["function"]], "function_call": {"name": "weather"}},
            {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "weather"}},
        ),
    ],
)
def test_tools_and_the_choice_among_them(fields: dict[str, Any], said: dict[str, Any]) -> None:
    assert sent(**{"tools": [TOOL], **fields}) == {**sent(), **said}


def test_a_conversation_becomes_a_system_prompt_and_alternating_turns() -> None:
    body = sent(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "In Basque."}]},
            {"role": "user", "content": "a"},
            {"role": "user", "content": "b", "name": "x"},
            {"role": "assistant", "content": "", "tool_calls": [call("functions.weather:0"), call("call_2", "")]},
            {"role": "tool", "tool_call_id": "functions.weather:0", "content": "sunny"},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "rain"}]},
            {"role": "user", "content": "thanks"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}, {"type": "text", "text": ""}]},
        ]
    )
    assert body["system"] == [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "In Basque."}]
    use = {"type": "tool_use", "name": "weather"}
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": [
                {**use, "id": "functions_weather_0", "input": {"city": "Bilbao"}},
                {**use, "id": "call_2", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "functions_weather_0", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "call_2", "content": "rain"},
                {"type": "text", "text": "thanks"},
            ],
        },
        {"role": "assistant", "content": "no"},
    ]


def test_the_old_function_calls_find_their_results() -> None:
    old = {"name": "weather", "arguments": "{}"}
    messages = [
        USER,
        {"role": "assistant", "content": None, "function_call": old},
        {"role": "function", "name": "weather", "content": "sunny"},
    ]
    _, use, result = sent(messages=messages)["messages"]
    assert use["content"][0]["id"] == result["content"][0]["tool_use_id"]


def test_a_request_of_system_messages_alone_still_has_a_turn() -> None:
    body = sent(messages=[{"role": "system", "content": "Say hello."}])
    assert body["messages"] == [{"role": "user", "content": "Say hello."}]
    assert "system" not in body


def test_images_and_documents_with_their_cache_marks() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    parts = [
        {"type": "text", "text": "See", "cache_control": mark},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}, "cache_control": mark},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"}},
    ]
    assert sent(messages=[{"role": "user", "content": parts}])["messages"][0]["content"] == [
        {"type": "text", "text": "See", "cache_control": mark},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}, "cache_control": mark},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"},
            "title": "a.pdf",
        },
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"stop": 5}, "stop"),
        ({"stop": ["\n"]}, "stop"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools[0]"),
        ({"functions": [{}]}, "functions[0]"),
        ({"tools": [TOOL], "tool_choice": "perhaps"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].image_url.url",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
            "messages[0].content[0].file",
        ),
        (
            {"messages": [USER, {"role": "assistant", "tool_calls": [call("c", "{")]}]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[0].tool_calls[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ],
)
def test_what_anthropic_cannot_do_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        wire.body(chat_request(**fields), "claude", None)
    assert caught.value.param == param


def test_trimmed_context_is_translated_and_errors_keep_the_clients_numbers() -> None:
    request = chat_request(
        messages=[USER, {"role": "assistant", "content": "long"}, {"role": "user", "content": "last"}]
    )
    plan = ContextPlan(9, 5, drop=frozenset({0}), replace={1: "short"})
    assert sent(request, plan)["messages"] == [
        {"role": "assistant", "content": "short"},
        {"role": "user", "content": "last"},
    ]
    wrong = chat_request(messages=[USER, USER, {"role": "tool", "content": "x"}])
    with pytest.raises(BadRequest, match=r"messages\[2\]"):
        wire.body(wrong, "claude", ContextPlan(9, 5, drop=frozenset({0})))


def test_the_version_and_forwardable_headers_go_on() -> None:
    headers = {b"traceparent": b"00-1", b"openai-beta": b"x", b"authorization": b"Bearer tg-x"}
    request = parse(orjson.dumps({"model": "auto", "messages": [USER]}), "r", Controls(), headers)
    assert [*wire.headers(request), *wire.forwarded(request)] == [
        (b"content-type", b"application/json"),
        (b"accept", b"application/json"),
        (b"anthropic-version", b"2023-06-01"),
        (b"traceparent", b"00-1"),
    ]
    assert dict(wire.headers(streaming()))[b"accept"] == b"text/event-stream"
