"""Chat and Gemini's generateContent: requests, answers and streams back."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.anthropic_messages import dialect as anthropic_messages
from gateway.dialects.base import StreamReader
from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.dialects.registry import wire
from gateway.dialects.translate.chat_to_gemini.translator import ChatToGemini
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.errors import BackendGarbage, BadRequest, FaultyAnswer, StreamBroken
from tests.dialects.test_hostile_translations import CLIENTS
from tests.fakes.google import USAGE, event, part
from tests.support.requests import request_in

PIXEL = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"a": {"const": 1, "minimum": 0}}}
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks", "parameters": SCHEMA}}
CALLED = {"id": "c:1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1.50}'}}
OLD, NEW = "gemini-2.5-flash", "gemini-3-pro-preview"
COUNTED = Usage(input_tokens=9, cached_tokens=5, output_tokens=4, reasoning_tokens=3)


def asked(messages: list[dict[str, Any]] | None = None, **fields: Any) -> CompletionRequest:
    body = {"model": "auto", "messages": messages or [{"role": "user", "content": "hello"}], **fields}
    return openai_chat.parse(orjson.dumps(body), "req_7", Controls(), {})


def sent(request: CompletionRequest, model: str = OLD, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(wire(request.dialect, "gemini_generate").body(request, model, None, **more))
    return found


def test_a_short_question_has_nothing_of_ours() -> None:
    assert sent(asked()) == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    assert sent(asked(), max_output_tokens=9)["generationConfig"] == {"maxOutputTokens": 9}


def test_sampling_limits_and_system_prompts_have_their_places() -> None:
    messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "hello"}]
    fields = {"temperature": 1.5, "top_p": 0.9, "top_k": 5, "seed": 3, "stop": "\n", "max_tokens": 7}
    body = sent(asked(messages, presence_penalty=0.5, frequency_penalty=0.25, **fields))
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief"}]}
    assert body["generationConfig"] == {
        "temperature": 1.5,
        "topP": 0.9,
        "topK": 5,
        "seed": 3,
        "stopSequences": ["\n"],
        "maxOutputTokens": 7,
        "presencePenalty": 0.5,
        "frequencyPenalty": 0.25,
    }


def conversation(**call: Any) -> list[dict[str, Any]]:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}
    return [
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture, file]},
        {"role": "assistant", "content": None, "tool_calls": [{**CALLED, **call}]},
        {"role": "tool", "tool_call_id": "c:1", "content": "a tree"},
    ]


def test_calls_results_pictures_and_files() -> None:
    turns = sent(asked(conversation(), tools=[TOOL]))["contents"]
    assert turns[0]["parts"][1:] == [
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
    ]
    assert turns[1] == {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": 1.5}}}]}
    answer = {"functionResponse": {"name": "look", "response": {"result": "a tree"}}}
    assert turns[2] == {"role": "user", "parts": [answer]}


def test_a_result_that_is_an_object_stays_one() -> None:
    messages = conversation()
    messages[2]["content"] = '{"tree": 1}'
    (part_of,) = sent(asked(messages, tools=[TOOL]))["contents"][2]["parts"]
    assert part_of["functionResponse"]["response"] == {"tree": 1}


def test_a_signature_goes_back_with_its_call_and_a_call_without_one_says_so_where_it_must() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    for model in (OLD, NEW):
        (call,) = sent(asked(conversation(**extra), tools=[TOOL]), model)["contents"][1]["parts"]
        assert call["thoughtSignature"] == "c2ln"
    (call,) = sent(asked(conversation(), tools=[TOOL]), NEW)["contents"][1]["parts"]
    assert call["thoughtSignature"] == "skip_thought_signature_validator"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "look"}}, {"mode": "ANY", "allowedFunctionNames": ["look"]}),
    ],
)
def test_a_choice_of_tools(choice: Any, expected: dict[str, Any]) -> None:
    body = sent(asked(tools=[TOOL], tool_choice=choice))
    assert body["toolConfig"] == {"functionCallingConfig": expected}
    declared = {"name": "look", "description": "Looks", "parametersJsonSchema": SCHEMA}
    assert body["tools"] == [{"functionDeclarations": [declared]}]
    assert "toolConfig" not in sent(asked(tools=[TOOL]))


def test_a_schema_is_sent_as_it_is() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    config = sent(asked(response_format=form))["generationConfig"]
    assert config == {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}
    config = sent(asked(response_format={"type": "json_object"}))["generationConfig"]
    assert config == {"responseMimeType": "application/json"}


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        (OLD, "low", {"thinkingBudget": 1024, "includeThoughts": True}),
        (OLD, "high", {"thinkingBudget": 24576, "includeThoughts": True}),
        (OLD, "none", {"thinkingBudget": 0}),
        (NEW, "low", {"thinkingLevel": "low", "includeThoughts": True}),
        (NEW, "xhigh", {"thinkingLevel": "high", "includeThoughts": True}),
    ],
)
def test_effort_is_a_budget_or_a_level(model: str, effort: str, expected: dict[str, Any]) -> None:
    assert sent(asked(reasoning_effort=effort), model)["generationConfig"]["thinkingConfig"] == expected


def test_thoughts_of_anthropics_models_are_not_sent() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    said = [thought, {"type": "text", "text": "yes"}]
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": said}, {"role": "user", "content": "b"}]
    body = orjson.dumps({"model": "auto", "max_tokens": 50, "messages": turns})
    request = anthropic_messages.parse(body, "req_7", Controls(), {})
    assert sent(request)["contents"][1] == {"role": "model", "parts": [{"text": "yes"}]}


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y"}}]}]},
            "data URL",
        ),
        ({"web_search_options": {}}, "takes functions"),
        ({"n": 2}, "n must be 1"),
        ({"logprobs": True}, "logprobs"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"response_format": {"type": "json_schema"}}, "schema must be an object"),
    ],
)
def test_what_gemini_cannot_carry_is_named(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        sent(asked(**fields))


CALL = {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "c2ln"}
PARTS: list[dict[str, Any]] = [{"text": "hm", "thought": True}, {"text": "I "}, {"text": "look"}, CALL]


def plain(reply: Any) -> Any:
    return ChatToGemini(lambda: 1.0).plain(asked(), orjson.dumps(reply))


def test_an_answer_comes_back_with_calls_thoughts_and_counts() -> None:
    found = plain(part(*PARTS, finishReason="STOP"))
    completion = orjson.loads(found.body)
    said = completion["choices"][0]["message"]
    assert (found.usage, found.finish, completion["id"]) == (COUNTED, "tool_calls", "chatcmpl-7")
    assert (said["content"], said["reasoning_content"]) == ("I look", "hm")
    (call,) = said["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"at":1}'}
    assert call["extra_content"] == {"google": {"thought_signature": "c2ln"}}
    assert completion["usage"]["prompt_tokens_details"]["cached_tokens"] == 5
    again = [{"role": "user", "content": "hi"}, said, {"role": "tool", "tool_call_id": call["id"], "content": "x"}]
    assert sent(asked(again, tools=[TOOL]), NEW)["contents"][1]["parts"][-1] == CALL


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "stop"),
        ("SOMETHING_NEW", "stop"),
        ("FINISH_REASON_UNSPECIFIED", ""),
    ],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    assert plain(part({"text": "x"}, finishReason=reason)).finish == finish


BLOCKED = {
    "promptFeedback": {"blockReason": "SAFETY"},
    "usageMetadata": {"promptTokenCount": 14, "totalTokenCount": 14},
}


def test_a_blocked_prompt_is_an_answer_that_was_filtered() -> None:
    found = plain(BLOCKED)
    (choice,) = orjson.loads(found.body)["choices"]
    assert (found.finish, choice["message"]["content"]) == ("content_filter", None)
    assert "SAFETY" in choice["message"]["refusal"]
    assert found.usage == Usage(input_tokens=14)
    reader = ChatToGemini().reader(asked(stream=True))
    assert b"SAFETY" in reader.feed(event(BLOCKED))
    reader.eof()
    assert (reader.finish, reader.usage) == ("content_filter", Usage(input_tokens=14))


@pytest.mark.parametrize("body", [b"{}", b'{"candidates":[]}', b'{"candidates":[5]}', b"[]", b"5", b"<html>"])
def test_what_is_no_answer_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        ChatToGemini().plain(asked(), body)


STREAM = b"".join(event(each) for each in (*(part(each) for each in PARTS), part({"text": ""}, finishReason="STOP")))


@pytest.mark.parametrize("size", [1, 13, 10_000])
def test_a_stream_says_what_the_plain_answer_says(size: int) -> None:
    reader = ChatToGemini(lambda: 1.0).reader(asked(stream=True, stream_options={"include_usage": True}))
    data = b"".join(reader.feed(STREAM[at : at + size]) for at in range(0, len(STREAM), size))
    reader.eof()
    assert (reader.usage, reader.finish) == (COUNTED, "tool_calls")
    assert reader.ending.endswith(b"data: [DONE]\n\n")
    assert b'"cached_tokens":5' in reader.ending
    assert b"thought_signature" in data
    whole = reader.completion()
    assert whole is not None
    found, expected = [
        orjson.loads(each)["choices"][0]["message"] for each in (whole, plain(part(*PARTS, finishReason="STOP")).body)
    ]
    for name in ("content", "reasoning_content"):
        assert found[name] == expected[name]
    assert found["tool_calls"][0]["function"] == expected["tool_calls"][0]["function"]


def test_a_stream_without_a_finish_reason_is_broken() -> None:
    reader = ChatToGemini().reader(asked(stream=True))
    reader.feed(event(part({"text": "Hello"})))
    with pytest.raises(StreamBroken):
        reader.eof()


@pytest.mark.parametrize("value", [{"candidates": 5}, {"candidates": [{"content": 5}]}, 5, "x"])
def test_what_is_no_event_is_garbage(value: Any) -> None:
    reader = ChatToGemini().reader(asked(stream=True))
    with pytest.raises(BackendGarbage):
        reader.feed(event(value))


FAULTS = ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "SOMETHING_NEW"]
EMPTY_ENDS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), "content_filter"),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_RECITATION", "MODEL_ARMOR"), "content_filter"),
}


def read_whole(reader: StreamReader, data: bytes) -> None:
    reader.feed(data)
    reader.eof()


@pytest.mark.parametrize("parts", [[], [{"text": ""}], [{"text": "hm", "thought": True}]], ids=str)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("reason", FAULTS)
def test_a_failure_without_an_answer_is_a_faulty_answer(reason: str, client: DialectName, parts: list[Any]) -> None:
    reply = part(*parts, finishReason=reason)
    with pytest.raises(FaultyAnswer, match=reason):
        wire(client, "gemini_generate").plain(request_in(client), orjson.dumps(reply))
    reader = wire(client, "gemini_generate").reader(request_in(client, stream=True))
    with pytest.raises(FaultyAnswer, match=reason):
        read_whole(reader, event(reply))
    assert reader.reported == COUNTED
    assert not reader.ending


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("reason", "finish"), EMPTY_ENDS.items())
def test_an_empty_answer_that_has_its_reason_keeps_it(reason: str, finish: str, client: DialectName) -> None:
    reply = {"candidates": [{"finishReason": reason, "index": 0}], "usageMetadata": USAGE}
    found = wire(client, "gemini_generate").plain(request_in(client), orjson.dumps(reply))
    reader = wire(client, "gemini_generate").reader(request_in(client, stream=True))
    reader.feed(event(reply))
    reader.eof()
    assert (found.finish, found.usage) == (reader.finish, reader.usage) == (finish, COUNTED)


def test_a_failure_after_a_part_of_the_answer_ends_it() -> None:
    for shown in ({"text": "x"}, CALL, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}):
        assert plain(part(shown, finishReason="OTHER")).finish in ("stop", "tool_calls")
        reader = ChatToGemini().reader(asked(stream=True))
        reader.feed(event(part({"text": "a"})) + event(part(shown)) + event(part(finishReason="OTHER")))
        reader.eof()
        assert reader.finish in ("stop", "tool_calls")
