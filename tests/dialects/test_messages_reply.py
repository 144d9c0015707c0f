"""What Anthropic answers, and refuses, in OpenAI's words."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai.types.chat import ChatCompletion

from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, BackendOverloaded
from tests.dialects.over_anthropic import answered, message, wire
from tests.dialects.samples import golden
from tests.support.requests import chat_request


def test_a_real_servers_message_becomes_a_chat_completion() -> None:
    plain = wire.plain(chat_request(), golden("llamacpp_messages.json"))
    assert plain.usage == Usage(input_tokens=1, cached_tokens=26, output_tokens=24)
    assert (plain.finish, plain.text) == ("length", "🌈" * 8)
    completion = ChatCompletion.model_validate_json(plain.body)
    assert completion.created == 1_700_000_000
    assert completion.choices[0].message.content == "🌈" * 8
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.total_tokens) == (27, 51)


def test_a_message_of_thoughts_and_parallel_calls_byte_for_byte() -> None:
    answered(golden("anthropic_message.json"))
    assert wire.plain(chat_request(), golden("anthropic_message.json")).body == golden("anthropic_message.as_chat.json")


def test_thoughts_and_calls_come_back() -> None:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "Let me"},
            {"type": "text", "text": " see."},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bilbao"}},
            {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}},
        ],
        "stop_reason": "tool_use",
        "usage": {
            "input_tokens": 3,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
            "output_tokens": 50,
            "output_tokens_details": {"thinking_tokens": 40},
        },
    }
    plain = wire.plain(chat_request(), orjson.dumps(message))
    assert plain.usage == Usage(3, 100, 10, 20, output_tokens=10, reasoning_tokens=40)
    completion = orjson.loads(plain.body)
    ChatCompletion.model_validate(completion)
    said = completion["choices"][0]["message"]
    assert (said["content"], said["reasoning_content"]) == ("Let me see.", "Hm.")
    assert said["thinking_blocks"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
    ]
    assert [(one["id"], one["function"]["arguments"]) for one in said["tool_calls"]] == [
        ("toolu_1", '{"city":"Bilbao"}'),
        ("toolu_2", "{}"),
    ]
    assert completion["usage"]["prompt_tokens"] == 133
    assert completion["usage"]["completion_tokens"] == 50
    assert plain.finish == "tool_calls"


def test_arguments_come_back_as_they_were_written() -> None:
    written = '{ "z": 123456789012345678901234567890,\n "a": 1.50, "content": [{"input": 1e3}]}'
    call = {"type": "tool_use", "id": "t", "name": "f", "input": orjson.Fragment(written)}
    odd = {"type": "tool_use", "id": "u", "name": "g", "input": None}
    said = answered(message({"type": "text", "text": '"content": ['}, call, odd)).choices[0].message
    assert [one.function.arguments for one in said.tool_calls or ()] == [written, "{}"]  # type: ignore[union-attr]


def test_unsigned_thoughts_cannot_come_back_so_they_are_only_shown() -> None:
    said = answered(message({"type": "thinking", "thinking": "Hm.", "signature": ""})).choices[0].message
    assert said.model_extra == {"reasoning_content": "Hm."}


def test_a_stop_sequence_and_a_refusal_are_named() -> None:
    stopped = answered(message(stop_reason="stop_sequence", stop_sequence="END")).choices[0]
    assert (stopped.finish_reason, stopped.model_extra) == ("stop", {"stop_reason": "END"})
    details = {"type": "refusal", "category": "bio", "explanation": "I can't."}
    refused = answered(message(stop_reason="refusal", stop_details=details)).choices[0]
    assert (refused.finish_reason, refused.message.refusal) == ("content_filter", "I can't.")


@pytest.mark.parametrize(
    ("status", "kind", "words", "code", "param"),
    [
        (400, "invalid_request_error", "prompt is too long: 9 tokens > 5 maximum", "context_length_exceeded", None),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 9 + 5 > 10",
            "context_length_exceeded",
            None,
        ),
        (400, "invalid_request_error", "max_tokens: 9 > 5, which is the maximum", "backend_refused", "max_tokens"),
        (400, "invalid_request_error", "stop_sequences: too many", "backend_refused", "stop"),
        (400, "invalid_request_error", "tools.0.custom.name: String should", "backend_refused", "tools"),
        (400, "invalid_request_error", "messages.0.content: is odd", "backend_refused", None),
        (413, "request_too_large", "Request exceeds the maximum size", "request_too_large", None),
    ],
)
def test_refusals_in_openais_words(status: int, kind: str, words: str, code: str, param: str | None) -> None:
    body = orjson.dumps({"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"})
    refusal = wire.refusal(status, body, "claude")
    assert (refusal.status, refusal.kind, refusal.code, refusal.param, refusal.message) == (
        status, "invalid_request_error", code, param, words,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "length"),
        ("tomorrows", "tomorrows"),
        (None, ""),
    ],
)
def test_stop_reasons_in_openais_words(reason: str | None, finish: str) -> None:
    body: dict[str, Any] = {"type": "message", "content": [], "stop_reason": reason, "usage": {"input_tokens": -1}}
    plain = wire.plain(chat_request(), orjson.dumps(body))
    assert (plain.finish, plain.usage) == (finish, Usage(doubt="input_tokens"))


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"{}",
        b'{"type":"message","content":"hello"}',
        b'{"choices":[]}',
    ],
)
def test_what_is_no_message_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        wire.plain(chat_request(), body)


def test_an_error_in_place_of_a_message_keeps_its_kind() -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    with pytest.raises(BackendOverloaded):
        wire.plain(chat_request(), body)
