"""Chat and Converse: requests against AWS's own service model, answers and streams back."""

from __future__ import annotations

from typing import Any

import botocore.loaders
import botocore.model
import botocore.validate
import orjson
import pytest

from gateway.dialects.anthropic_messages import dialect as anthropic_messages
from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.dialects.registry import wire
from gateway.dialects.translate.chat_to_converse.translator import ChatToConverse
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.errors import BackendGarbage, BadRequest, FaultyAnswer, StreamBroken
from tests.dialects.test_hostile_translations import CLIENTS
from tests.support.requests import request_in

PIXEL = "iVBORw0KGgo="
MODEL = "amazon.nova-pro-v1:0"
SERVICE = botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2"))
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks", "parameters": {"type": "object"}}}
CALLED = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1.50}'}}


def asked(messages: list[dict[str, Any]] | None = None, **fields: Any) -> CompletionRequest:
    body = {"model": "auto", "messages": messages or [{"role": "user", "content": "hello"}], **fields}
    return openai_chat.parse(orjson.dumps(body), "req_7", Controls(), {})


def sent(request: CompletionRequest, **more: Any) -> dict[str, Any]:
    """The body, which AWS's service model must accept."""
    body: dict[str, Any] = orjson.loads(wire(request.dialect, "bedrock_converse").body(request, MODEL, None, **more))
    shape = SERVICE.operation_model("Converse").input_shape
    report = botocore.validate.ParamValidator().validate({"modelId": MODEL, **body}, shape)
    assert not report.has_errors(), report.generate_report()
    return body


def test_a_short_question_has_no_limit_of_ours() -> None:
    assert sent(asked()) == {"messages": [{"role": "user", "content": [{"text": "hello"}]}]}
    assert sent(asked(), max_output_tokens=9)["inferenceConfig"] == {"maxTokens": 9}


def test_sampling_limits_and_system_prompts_have_their_places() -> None:
    messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "hello"}]
    body = sent(asked(messages, temperature=0.5, top_p=0.9, top_k=5, stop=["x"], max_tokens=7))
    assert body["system"] == [{"text": "Be brief"}]
    assert body["inferenceConfig"] == {"temperature": 0.5, "topP": 0.9, "stopSequences": ["x"], "maxTokens": 7}
    assert body["additionalModelRequestFields"] == {"top_k": 5}


def test_calls_results_pictures_and_files() -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    file = {"type": "file", "file": {"filename": "q3: über.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}
    plain = {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture, file, plain]},
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "c1", "content": "a tree"},
    ]
    turns = sent(asked(messages, tools=[TOOL]))["messages"]
    assert turns[0]["content"][1:] == [
        {"image": {"format": "png", "source": {"bytes": PIXEL}}},
        {"document": {"format": "pdf", "name": "q3 ber pdf", "source": {"bytes": "JVBERi0="}}},
        {"document": {"format": "txt", "name": "a txt", "source": {"bytes": "aGVsbG8="}}},
    ]
    assert turns[1]["content"] == [{"toolUse": {"toolUseId": "c1", "name": "look", "input": {"at": 1.5}}}]
    assert turns[2] == {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "a tree"}]}}],
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"auto": {}}),
        ("required", {"any": {}}),
        ({"type": "function", "function": {"name": "look"}}, {"tool": {"name": "look"}}),
        (None, None),
    ],
)
def test_a_choice_of_tools(choice: Any, expected: Any) -> None:
    given = {} if choice is None else {"tool_choice": choice}
    config = sent(asked(tools=[TOOL], **given))["toolConfig"]
    assert config.get("toolChoice") == expected
    schema = {"json": {"type": "object"}}
    assert config["tools"] == [{"toolSpec": {"name": "look", "description": "Looks", "inputSchema": schema}}]


def test_no_tools_stand_there_where_none_may_be_called_unless_calls_need_them() -> None:
    assert "toolConfig" not in sent(asked(tools=[TOOL], tool_choice="none"))
    called = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "c1", "content": "a tree"},
    ]
    assert "toolConfig" in sent(asked(called, tools=[TOOL], tool_choice="none"))


def test_a_schema_and_an_effort_are_its_output_config() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}}}
    config = sent(asked(response_format=form, reasoning_effort="low"))["outputConfig"]
    text = config["textFormat"]["structure"]["jsonSchema"]
    assert (config["effort"], orjson.loads(text["schema"])) == ("low", {"type": "object", "properties": {}})


def test_cache_marks_become_cache_points() -> None:
    part = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    (turn,) = sent(asked([{"role": "user", "content": [part]}]))["messages"]
    assert turn["content"] == [{"text": "long"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]


def test_thoughts_go_back_with_their_signatures() -> None:
    body = {
        "model": "auto",
        "max_tokens": 50,
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "redacted_thinking", "data": "cmVk"},
                    {"type": "text", "text": "yes"},
                ],
            },
            {"role": "user", "content": "why"},
        ],
    }
    request = anthropic_messages.parse(orjson.dumps(body), "req_7", Controls(), {})
    assert sent(request)["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"text": "yes"},
    ]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y"}}]}]},
            "data URL",
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "takes functions"),
        ({"n": 2}, "n must be 1"),
    ],
)
def test_what_converse_cannot_carry_is_named(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        sent(asked(**fields))


REPLY = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
                {"text": "I look"},
                {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"at": 1}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {
        "inputTokens": 3,
        "outputTokens": 4,
        "cacheReadInputTokens": 5,
        "cacheWriteInputTokens": 6,
        "cacheDetails": [{"ttl": "1h", "inputTokens": 2}, {"ttl": "5m", "inputTokens": 4}],
    },
}
COUNTED = Usage(input_tokens=3, output_tokens=4, cached_tokens=5, cache_write_5m_tokens=4, cache_write_1h_tokens=2)


def test_an_answer_comes_back_with_calls_thoughts_and_counts() -> None:
    plain = ChatToConverse(lambda: 1.0).plain(asked(), orjson.dumps(REPLY))
    completion = orjson.loads(plain.body)
    said = completion["choices"][0]["message"]
    assert (plain.usage, plain.finish, completion["id"]) == (COUNTED, "tool_calls", "chatcmpl-7")
    assert (said["content"], said["reasoning_content"]) == ("I look", "hm")
    assert said["thinking_blocks"] == [{"type": "thinking", "thinking": "hm", "signature": "sig"}]
    assert orjson.loads(said["tool_calls"][0]["function"]["arguments"]) == {"at": 1}


@pytest.mark.parametrize("body", [b"{}", b'{"output":{}}', b'{"message":"x"}', b"[]", b"5", b"<html>"])
def test_what_is_no_answer_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        ChatToConverse().plain(asked(), body)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("malformed_tool_use", "stop"),
    ],
)
def test_stop_reasons(reason: str, finish: str) -> None:
    body = orjson.dumps({**REPLY, "stopReason": reason})
    assert ChatToConverse().plain(asked(), body).finish == finish


EVENTS: list[dict[str, Any]] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "hm"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "sig"}}}},
    {"contentBlockStop": {"contentBlockIndex": 0}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "I "}}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "look"}}},
    {"contentBlockStop": {"contentBlockIndex": 1}},
    {"contentBlockStart": {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t1", "name": "look"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"at"'}}}},
    {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": ":1}"}}}},
    {"contentBlockStop": {"contentBlockIndex": 2}},
    {"somethingNew": {"a": 1}},
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": REPLY["usage"], "metrics": {"latencyMs": 1}}},
]


def streamed(events: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + orjson.dumps(each) + b"\n\n" for each in events)


@pytest.mark.parametrize("size", [1, 13, 10_000])
def test_a_stream_says_what_the_plain_answer_says(size: int) -> None:
    reader = ChatToConverse(lambda: 1.0).reader(asked(stream=True))
    data = streamed(EVENTS)
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    reader.eof()
    assert (reader.usage, reader.finish, reader.ending) == (COUNTED, "tool_calls", b"data: [DONE]\n\n")
    whole = reader.completion()
    assert whole is not None
    found, plain = [
        orjson.loads(each)["choices"][0]["message"]
        for each in (whole, ChatToConverse(lambda: 1.0).plain(asked(), orjson.dumps(REPLY)).body)
    ]
    for name in ("content", "reasoning_content", "thinking_blocks"):
        assert found[name] == plain[name]
    assert found["tool_calls"][0]["function"] == plain["tool_calls"][0]["function"]


@pytest.mark.parametrize("end", range(1, len(EVENTS)))
def test_a_stream_without_metadata_is_broken(end: int) -> None:
    reader = ChatToConverse().reader(asked(stream=True))
    reader.feed(streamed(EVENTS[:end]))
    with pytest.raises(StreamBroken):
        reader.eof()


@pytest.mark.parametrize("event", [{"a": 1, "b": 2}, {"contentBlockDelta": 5}, {"metadata": []}, [], 5])
def test_what_is_no_event_is_garbage(event: Any) -> None:
    reader = ChatToConverse().reader(asked(stream=True))
    with pytest.raises(BackendGarbage):
        reader.feed(streamed([event]))


FAULTS = ["malformed_model_output", "malformed_tool_use"]
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}}


@pytest.mark.parametrize("content", [[], [{"text": ""}], [THOUGHT]], ids=str)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("reason", FAULTS)
def test_a_failure_without_an_answer_is_a_faulty_answer(reason: str, client: DialectName, content: list[Any]) -> None:
    translator = wire(client, "bedrock_converse")
    reply = {**REPLY, "output": {"message": {"role": "assistant", "content": content}}, "stopReason": reason}
    with pytest.raises(FaultyAnswer, match=reason):
        translator.plain(request_in(client), orjson.dumps(reply))
    begun = EVENTS[: 4 if THOUGHT in content else 1]
    stop = {"messageStop": {"stopReason": reason}}
    reader = translator.reader(request_in(client, stream=True))
    reader.feed(streamed([*begun, stop]))
    with pytest.raises(FaultyAnswer, match=reason):
        reader.feed(streamed([EVENTS[-1]]))
    assert (reader.usage, bool(reader.finish), reader.ending) == (COUNTED, True, b"")
    without_usage = translator.reader(request_in(client, stream=True))
    without_usage.feed(streamed([*begun, stop]))
    with pytest.raises(FaultyAnswer, match=reason):
        without_usage.eof()


@pytest.mark.parametrize("reason", FAULTS)
@pytest.mark.parametrize(("begun", "finish"), [(EVENTS[:7], "stop"), (EVENTS[:1] + EVENTS[7:11], "stop")])
def test_a_failure_after_a_part_of_the_answer_ends_it(reason: str, begun: list[dict[str, Any]], finish: str) -> None:
    reader = ChatToConverse().reader(asked(stream=True))
    reader.feed(streamed([*begun, {"messageStop": {"stopReason": reason}}, EVENTS[-1]]))
    reader.eof()
    assert (reader.finish, reader.usage) == (finish, COUNTED)
