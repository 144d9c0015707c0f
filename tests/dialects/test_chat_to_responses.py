"""OpenAI chat clients over Responses backends: what is sent, and whole answers back."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import orjson
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from gateway.dialects.openai_chat.dialect import parse
from gateway.dialects.translate.chat_to_responses.translator import ChatToResponses
from gateway.domain.money.usage import Usage
from gateway.domain.request import Controls
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage, BadRequest
from tests.dialects.samples import USER, golden, streaming
from tests.support.requests import chat_request

wire = ChatToResponses()
PARAMS = TypeAdapter(ResponseCreateParamsNonStreaming)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Looks", "parameters": SCHEMA}}
WEATHER = {"type": "function", "name": "weather", "description": "Looks", "parameters": SCHEMA, "strict": False}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def sent(request: Any = None, plan: ContextPlan | None = None, **fields: Any) -> dict[str, Any]:
    body = orjson.loads(wire.body(request or chat_request(**fields), "gpt-5", plan))
    PARAMS.validate_python(body)
    return dict(body)


def call(call_id: str, arguments: str = '{"city": "Bilbao" }') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def test_the_smallest_request_stores_nothing() -> None:
    assert sent() == {"model": "gpt-5", "input": [{"role": "user", "content": "hello"}], "store": False}
    assert sent(store=True)["store"] is False


@pytest.mark.parametrize(
    ("given", "told", "limit"),
    [({}, None, None), ({}, 99, 99), ({"max_tokens": 5}, None, 5), ({"max_completion_tokens": 6}, 7, 7)],
)
def test_an_output_limit_has_one_name(given: dict[str, Any], told: int | None, limit: int | None) -> None:
    body = orjson.loads(wire.body(chat_request(**given), "gpt-5", None, max_output_tokens=told))
    assert body.get("max_output_tokens") == limit
    assert not {"max_tokens", "max_completion_tokens"} & body.keys()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"temperature": 0.3, "top_p": 0.9, "user": "u1"}, {"temperature": 0.3, "top_p": 0.9, "user": "u1"}),
        ({"metadata": {"a": "b"}, "service_tier": "flex"}, {"metadata": {"a": "b"}, "service_tier": "flex"}),
        ({"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}),
        ({"reasoning_effort": "minimal"}, {"reasoning": {"effort": "minimal"}}),
        (
            {"reasoning_effort": "low", "reasoning": {"summary": "auto"}},
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        ({"reasoning": {"summary": "auto"}}, {"reasoning": {"summary": "auto"}}),
        ({"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ({"response_format": {"type": "json_object"}}, {"text": {"format": {"type": "json_object"}}}),
        (
            {
                "verbosity": "high",
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": SCHEMA, "strict": True, "description": "d"},
                },
            },
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "x",
                        "schema": SCHEMA,
                        "strict": True,
                        "description": "d",
                    },
                    "verbosity": "high",
                }
            },
        ),
        (
            {"logprobs": True, "top_logprobs": 3},
            {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
        ),
        ({"seed": 1, "prediction": {"type": "content", "content": "x"}, "n": 1, "stop": [], "logit_bias": {}}, {}),
        ({"presence_penalty": 0, "frequency_penalty": 0.0, "logprobs": False, "modalities": ["text"]}, {}),
        ({"tools": None, "stop": None, "response_format": None}, {}),
        ({"invented_tomorrow": {"a": 1}}, {"invented_tomorrow": {"a": 1}}),
    ],
)
def test_parameters_are_translated_dropped_as_hints_or_carried(fields: dict[str, Any], said: dict[str, Any]) -> None:
    assert sent(**fields) == {**sent(), **said}


def test_a_stream_is_asked_for_as_one_and_its_noise_as_the_client_wants_it() -> None:
    assert orjson.loads(wire.body(streaming(wants_usage=True), "gpt-5", None)) == {**sent(), "stream": True}
    quiet = chat_request(stream=True, stream_options={"include_obfuscation": False})
    assert orjson.loads(wire.body(quiet, "gpt-5", None))["stream_options"] == {"include_obfuscation": False}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, {"tools": [WEATHER]}),
        *[({"tool_choice": word}, {"tools": [WEATHER], "tool_choice": word}) for word in ("auto", "required", "none")],
        (
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
            {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "weather"}},
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "required",
                        "tools": [{"type": "function", "function": {"name": "weather"}}],
                    },
                }
            },
            {
                "tools": [WEATHER],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "weather"}],
                },
            },
        ),
        ({"parallel_tool_calls": False}, {"tools": [WEATHER], "parallel_tool_calls": False}),
        (
            {"web_search_options": {"user_location": {"type": "approximate", "approximate": {"country": "ES"}}}},
            {
                "tools": [
                    WEATHER,
                    {"type": "web_search", "user_location": {"type": "approximate", "country": "ES"}},
                ]
            },
        ),
    ],
)
def test_tools_and_their_choice(fields: dict[str, Any], said: dict[str, Any]) -> None:
    assert sent(tools=[TOOL], **fields) == {**sent(), **said}


def test_tools_of_every_kind() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
    tools: list[dict[str, Any]] = [
        {"type": "function", "function": {"name": "now", "strict": True}},
        {"type": "function", "function": {"name": "then"}, "cache_control": {"type": "ephemeral"}},
        {"type": "custom", "custom": {"name": "shell", "description": "d", "format": grammar}},
        {"type": "custom", "custom": {"name": "say", "format": {"type": "text"}}},
        {"type": "file_search", "vector_store_ids": ["v"]},
    ]
    empty = {"type": "object", "properties": {}}
    assert sent(tools=tools, functions=[{"name": "old", "parameters": SCHEMA}], function_call={"name": "old"}) == {
        **sent(),
        "tools": [
            {"type": "function", "name": "now", "parameters": empty, "strict": True},
            {"type": "function", "name": "then", "parameters": empty, "strict": False},
            {
                "type": "custom",
                "name": "shell",
                "description": "d",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
            },
            {"type": "custom", "name": "say", "format": {"type": "text"}},
            {"type": "file_search", "vector_store_ids": ["v"]},
            {"type": "function", "name": "old", "parameters": SCHEMA, "strict": False},
        ],
        "tool_choice": {"type": "function", "name": "old"},
    }


def test_a_conversation_with_parallel_calls_and_their_results() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Very."}]},
        {"role": "user", "content": [{"type": "text", "text": "Where?"}, IMAGE], "name": "ana"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
            "tool_calls": [call("a"), {"id": "b", "type": "custom", "custom": {"name": "shell", "input": "ls"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "x"}, IMAGE]},
        {"role": "assistant", "content": None, "tool_calls": [call("c", "")]},
        {"role": "tool", "tool_call_id": "c", "content": None},
        {"role": "assistant", "content": [{"type": "text", "text": "Sun"}, {"type": "text", "text": "ny."}]},
        {"role": "user", "content": "Thanks"},
    ]
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
    weather = {"type": "function_call", "name": "weather"}
    assert sent(messages=messages)["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Very."},
        {"role": "user", "content": [{"type": "input_text", "text": "Where?"}, image]},
        {"role": "assistant", "content": "I look."},
        {**weather, "call_id": "a", "arguments": '{"city": "Bilbao" }'},
        {"type": "custom_tool_call", "call_id": "b", "name": "shell", "input": "ls"},
        {"type": "function_call_output", "call_id": "a", "output": "sunny"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "x"}, image]},
        {**weather, "call_id": "c", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": ""},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": "Thanks"},
    ]


def test_calls_of_the_first_kind_find_their_results() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ]
    assert sent(messages=messages)["input"][1:] == [
        {"type": "function_call", "call_id": "call_f", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_f", "output": "1"},
    ]


def test_parts_of_every_kind() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "file_1"}},
        {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "y", "prompt_cache_breakpoint": {"mode": "explicit"}},
    ]
    assert sent(messages=[{"role": "user", "content": parts}])["input"][0]["content"] == [
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"},
        {"type": "input_file", "file_id": "file_1"},
        {"type": "input_text", "text": "x"},
        {"type": "input_text", "text": "y", "prompt_cache_breakpoint": {"mode": "explicit"}},
    ]


def test_a_refusal_is_remembered_as_one() -> None:
    spoken = [
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "No."}]},
    ]
    body = orjson.loads(wire.body(chat_request(messages=[USER, *spoken]), "gpt-5", None))
    no = {"type": "refusal", "refusal": "No."}
    assert [item["content"] for item in body["input"][1:]] == [
        [no],
        [{"type": "output_text", "text": "a", "annotations": []}, no],
    ]


def test_trimmed_context() -> None:
    messages = [USER, {"role": "user", "content": "long"}, {"role": "user", "content": "last"}]
    plan = ContextPlan(100, 50, drop=frozenset({0}), replace={1: "short"})
    assert [item["content"] for item in sent(chat_request(messages=messages), plan)["input"]] == ["short", "last"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"stop": "END"}, "stop"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"frequency_penalty": 0.1}, "frequency_penalty"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "mp3"}}, "modalities"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].custom"),
        ({"functions": [{}]}, "functions[0]"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "tools": 7}}, "tool_choice"),
        ({"web_search_options": 7}, "web_search_options"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].image_url.url",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
            "messages[0].content[0].file",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages[0].audio"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "messages[0].tool_calls[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "custom": {}}]}]},
            "messages[0].tool_calls[0].custom",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [call("a", 7)]}]},  # type: ignore[arg-type]
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"messages": [{"role": "assistant", "content": [IMAGE, {"type": "text", "text": "x"}]}]},
            "messages[0].content[0]",
        ),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"reasoning": "high"}, "reasoning"),
    ],
)
def test_what_cannot_be_said_is_refused_by_its_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        wire.body(chat_request(**fields), "gpt-5", None)
    assert caught.value.param == param


LITELLM = """
import sys, orjson
from litellm.completion_extras.litellm_responses_transformation.transformation import (
    LiteLLMResponsesTransformationHandler as Handler,
)
said, _ = Handler().convert_chat_completion_messages_to_responses_api(orjson.loads(sys.stdin.buffer.read()))
sys.stdout.buffer.write(orjson.dumps(said))
"""
"""Run apart: it builds its models on first use, and warns of some."""


@pytest.mark.extras
@pytest.mark.timeout(120)
def test_litellm_says_the_conversation_the_same_way() -> None:
    """But for what it puts into `instructions`, its parts for what is one text, and ids that only mirror others."""
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Where?"}, IMAGE]},
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b", "{}")]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "content": "rain"},
        {"role": "user", "content": "Thanks"},
    ]
    theirs = subprocess.run(
        [sys.executable, "-c", LITELLM],
        input=orjson.dumps(messages),
        stdout=subprocess.PIPE,
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        check=True,
    ).stdout
    assert _essence(sent(messages=messages)["input"]) == _essence(orjson.loads(theirs))


def _essence(items: list[Any]) -> list[Any]:
    known = ("role", "call_id", "name", "arguments")
    return [
        {name: item[name] for name in known if name in item}
        | {name: _texts(item[name]) for name in ("content", "output") if name in item}
        for item in items
    ]


def _texts(content: Any) -> Any:
    parts = [{"text": content}] if type(content) is str else content
    return [part.get("text") or part.get("image_url") for part in parts]


def test_only_forwardable_headers_go_on() -> None:
    given = {b"authorization": b"Bearer tg-client", b"x-client-request-id": b"1"}
    request = parse(orjson.dumps({"model": "m", "messages": [USER]}), "r", Controls(), given)
    assert [*wire.headers(request), *wire.forwarded(request)] == [
        (b"content-type", b"application/json"),
        (b"accept", b"application/json"),
        (b"x-client-request-id", b"1"),
    ]


def test_a_refusal_names_the_clients_field() -> None:
    error = {"message": "Too small.", "type": "invalid_request_error", "param": "max_output_tokens", "code": "x"}
    refused = wire.refusal(400, orjson.dumps({"error": error}), "b")
    assert (refused.param, refused.message, refused.code) == ("max_completion_tokens", "Too small.", "x")
    assert wire.refusal(400, b"<html>", "b").param is None


def test_a_whole_answer() -> None:
    plain = wire.plain(chat_request(), golden("openai_responses.json"))
    completion = orjson.loads(plain.body)
    ChatCompletion.model_validate(completion)
    assert (completion["id"], completion["created"]) == ("resp_0689f1", 1754999123)
    message = completion["choices"][0]["message"]
    assert message["content"].startswith('Hola, "señor"\n😀')
    assert message["reasoning_content"] == "**Weighing the question**\n\n**Answering**\n\nBriefly."
    assert message["annotations"] == [
        {
            "type": "url_citation",
            "url_citation": {"start_index": 0, "end_index": 4, "title": "Hola", "url": "https://example.com/hola"},
        }
    ]
    assert completion["usage"]["prompt_tokens_details"]["cached_tokens"] == 1000
    assert completion["usage"]["completion_tokens_details"] == {"reasoning_tokens": 20}
    assert plain.usage == Usage(input_tokens=24, cached_tokens=1000, output_tokens=10, reasoning_tokens=20)
    assert (plain.finish, plain.confidence) == ("stop", None)


def test_calls_keep_their_ids_and_their_arguments_as_they_were_written() -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": '{ "a":1.0}'}
    custom = {"type": "custom_tool_call", "call_id": "call_2", "name": "shell", "input": "ls"}
    refused = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    plain = wire.plain(chat_request(), orjson.dumps({"status": "completed", "output": [refused, item, custom]}))
    assert plain.finish == "tool_calls"
    message = plain.choices[0]["message"]
    assert message["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{ "a":1.0}'}},
        {"id": "call_2", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
    ]
    assert (message["content"], message["refusal"]) == (None, "No.")


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        ({"status": "completed"}, "stop"),
        ({}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": {"reason": "tomorrows"}}, "tomorrows"),
        ({"status": "incomplete"}, "length"),
    ],
)
def test_how_it_ended_in_chats_words(said: dict[str, Any], finish: str) -> None:
    plain = wire.plain(chat_request(), orjson.dumps({"output": [], "usage": {"input_tokens": -1}, **said}))
    assert (plain.finish, plain.usage) == (finish, Usage(doubt="input_tokens"))
    assert "usage" not in orjson.loads(plain.body)


def test_log_probabilities_are_for_who_asked() -> None:
    row = {"token": "a", "logprob": 0.0, "bytes": [97], "top_logprobs": []}
    part = {"type": "output_text", "text": "a", "logprobs": [row]}
    body = orjson.dumps({"status": "completed", "output": [{"type": "message", "content": [part]}]})
    asking, silent = wire.plain(chat_request(logprobs=True), body), wire.plain(chat_request(), body)
    assert (asking.confidence, silent.confidence) == (1.0, 1.0)
    assert orjson.loads(asking.body)["choices"][0]["logprobs"] == {"content": [row], "refusal": None}
    assert orjson.loads(silent.body)["choices"][0]["logprobs"] is None
    asked = orjson.loads(wire.body(chat_request(), "m", None, logprobs=True))
    assert asked["include"] == ["message.output_text.logprobs"]


@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b'{"output":[],"status":"in_progress"}', b'{"output":[{"content":7}]}']
)
def test_what_is_no_whole_response_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        wire.plain(chat_request(), body)
