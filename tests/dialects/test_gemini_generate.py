"""Gemini's clients: requests as chat, answers and streams as Gemini's, errors in Google's shape."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.clients import DIALECTS, at, of_path
from gateway.dialects.registry import wire
from gateway.dialects.replay import Replayed
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest, Forbidden, LimitExceeded, Overloaded
from tests.dialects.samples import STOP, chunk, text

PATH = "/v1beta/models/auto:generateContent"
STREAM = "/v1beta/models/auto:streamGenerateContent"


def asked(contents: Any = None, path: str = PATH, **fields: Any) -> CompletionRequest:
    dialect = at(path)
    assert dialect is not None
    given = contents if contents is not None else [{"role": "user", "parts": [{"text": "hello"}]}]
    return dialect.parse(orjson.dumps({"contents": given, **fields}), "req_7", Controls(), {})


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        (PATH, "auto", False),
        (STREAM, "auto", True),
        ("/v1/models/small/one:generateContent", "small/one", False),
        ("/v1beta/models/small%2Fone:streamGenerateContent", "small/one", True),
        (
            "/v1beta1/projects/p/locations/eu/publishers/google/models/gemini-2.5-pro:generateContent",
            "gemini-2.5-pro",
            False,
        ),
    ],
)
def test_a_path_names_the_model_and_the_method(path: str, model: str, stream: bool) -> None:
    request = asked(path=path)
    assert (request.model, request.stream, request.dialect) == (model, stream, "gemini_generate")


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/x",
        "/v1beta/models/:generateContent",
        "/models/x:generateContent",
    ],
)
def test_other_paths_are_not_geminis(path: str) -> None:
    assert at(path) is None


@pytest.mark.parametrize(
    ("path", "googles"),
    [
        ("/v1/models/llama3.2:3b", False),
        ("/v1/models/llama3.2:3b:generateContent", True),
        ("/v1beta/models/x:embedContent", True),
        ("/v1/projects/p/models/a/models/b:countTokens", True),
        pytest.param("/v1/projects/" + "p/models/x:" * 10**5, False, id="no search for each model"),
        pytest.param("/" * 10**6, False, id="no copy for each slash"),
    ],
)
def test_errors_have_googles_shape_where_a_method_is_named(path: str, googles: bool) -> None:
    assert ("status" in orjson.loads(of_path(path).error_body(BadRequest("x"), "r"))["error"]) is googles


def test_a_request_is_a_chat_request() -> None:
    config = {
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 5,
        "maxOutputTokens": 7,
        "stopSequences": ["x"],
        "seed": 3,
        "candidateCount": 2,
        "presencePenalty": 0.1,
        "thinkingConfig": {"thinkingBudget": 2048},
    }
    request = asked(systemInstruction={"parts": [{"text": "Be brief"}]}, generationConfig=config)
    assert request.body == {
        "model": "auto",
        "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "hello"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "max_completion_tokens": 7,
        "stop": ["x"],
        "n": 2,
        "seed": 3,
        "presence_penalty": 0.1,
        "reasoning_effort": "medium",
        "gemini": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 2048}}},
    }
    assert (request.max_output_tokens, request.parallel, request.needs) == (7, 2, frozenset({"reasoning"}))
    assert [(turn.role, turn.text) for turn in request.turns] == [("system", "Be brief"), ("user", "hello")]


CALL = {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "c2ln"}
CONVERSATION = [
    {"role": "user", "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]},
    {
        "role": "model",
        "parts": [{"text": "hm", "thought": True}, {"text": "ok"}, CALL, {"functionCall": {"name": "look"}}],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "look", "response": {"result": "a tree"}}},
            {"functionResponse": {"name": "look", "response": {"a": 1}}},
            {"text": "and?"},
        ],
    },
]


def test_calls_and_results_belong_together_by_name_and_order() -> None:
    messages = asked(CONVERSATION).body["messages"]
    assert messages[0]["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
    one, two = messages[1]["tool_calls"]
    assert (messages[1]["content"], messages[1]["reasoning_content"]) == ("ok", "hm")
    assert (one["function"], two["function"]["arguments"]) == ({"name": "look", "arguments": '{"at":1}'}, "{}")
    assert one["extra_content"] == {"google": {"thought_signature": "c2ln"}}
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": one["id"], "content": "a tree"},
        {"role": "tool", "tool_call_id": two["id"], "content": '{"a":1}'},
        {"role": "user", "content": "and?"},
    ]


def test_from_gemini_to_gemini_signatures_and_calls_stay() -> None:
    sent = orjson.loads(wire("gemini_generate", "gemini_generate").body(asked(CONVERSATION), "gemini-3-pro", None))
    parts = sent["contents"][1]["parts"]
    assert parts[2] == CALL
    assert sent["contents"][2]["parts"][0]["functionResponse"] == {"name": "look", "response": {"result": "a tree"}}


def test_names_in_snake_case_are_the_same() -> None:
    contents = [
        {"parts": [{"inline_data": {"mime_type": "image/png", "data": "__4A"}}]},
        {
            "role": "model",
            "parts": [{"function_call": {"name": "look", "args": {"my_key": 1}}, "thought_signature": "c"}],
        },
        {"parts": [{"function_response": {"name": "look", "response": {"my_key": 2}}}]},
    ]
    schema = {"type": "object", "properties": {"my_key": {"type": "string"}}}
    request = asked(
        contents,
        system_instruction={"parts": [{"text": "Be brief"}]},
        tools=[{"function_declarations": [{"name": "look", "parameters_json_schema": schema}]}],
        generation_config={"max_output_tokens": 9, "thinking_config": {"thinking_budget": 0}},
    )
    system, picture, call, result = request.body["messages"]
    assert system["content"] == "Be brief"
    assert picture["content"][0]["image_url"]["url"] == "data:image/png;base64,//4A"
    assert (call["tool_calls"][0]["function"]["arguments"], result["content"]) == ('{"my_key":1}', '{"my_key":2}')
    assert call["tool_calls"][0]["extra_content"]["google"]["thought_signature"] == "c"
    assert request.body["tools"][0]["function"]["parameters"] == schema
    assert (request.body["max_completion_tokens"], request.body["reasoning_effort"]) == (9, "none")


def test_files_and_sounds() -> None:
    parts = [
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBER-_"}},
        {"inlineData": {"mimeType": "audio/mpeg", "data": "SUQz"}},
    ]
    (message,) = asked([{"parts": parts}]).body["messages"]
    assert message["content"] == [
        {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,JVBER+/"}},
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
    ]


OURS = {
    "type": "OBJECT",
    "properties": {
        "a": {"type": "STRING", "nullable": True},
        "b": {"type": "ARRAY", "items": {"type": "INTEGER"}, "minItems": "2"},
    },
    "propertyOrdering": ["a"],
}
THEIRS = {
    "type": "object",
    "properties": {
        "a": {"type": ["string", "null"]},
        "b": {"type": "array", "items": {"type": "integer"}, "minItems": 2},
    },
}


def test_tools_and_schemas_are_json_schemas() -> None:
    tool = {"functionDeclarations": [{"name": "f", "description": "d", "parameters": OURS}]}
    config = {"responseMimeType": "application/json", "responseSchema": OURS}
    body = asked(tools=[tool], generationConfig=config).body
    assert body["tools"] == [{"type": "function", "function": {"name": "f", "description": "d", "parameters": THEIRS}}]
    assert body["response_format"]["json_schema"]["schema"] == THEIRS
    plain = {"functionDeclarations": [{"name": "f", "parametersJsonSchema": THEIRS}]}
    assert asked(tools=[plain]).body["tools"][0]["function"]["parameters"] == THEIRS


@pytest.mark.parametrize(
    ("calling", "choice", "names"),
    [
        ({"mode": "AUTO"}, "auto", ["f", "g"]),
        ({"mode": "NONE"}, "none", ["f", "g"]),
        ({"mode": "ANY"}, "required", ["f", "g"]),
        ({"mode": "ANY", "allowedFunctionNames": ["g"]}, "required", ["g"]),
        ({}, None, ["f", "g"]),
    ],
)
def test_a_choice_of_tools(calling: dict[str, Any], choice: str | None, names: list[str]) -> None:
    tools = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]
    body = asked(tools=tools, toolConfig={"functionCallingConfig": calling}).body
    assert (body.get("tool_choice"), [each["function"]["name"] for each in body["tools"]]) == (choice, names)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"contents": []}, "contents"),
        ({"contents": [{"parts": 5}]}, "contents[0].parts"),
        ({"contents": [{"parts": [{"fileData": {"fileUri": "gs://x/y"}}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"parts": [{"functionResponse": {"name": "f"}}]}]}, "contents[0].parts[0].functionResponse"),
        ({"cachedContent": "cachedContents/1"}, "cachedContent"),
        ({"modelArmorConfig": {"promptTemplateName": "x"}}, "modelArmorConfig"),
        ({"contents": [{"role": "model", "parts": [{"executableCode": {}}]}]}, "contents[0].parts[0]"),
        ({"tools": [{"googleSearch": {}}]}, "tools"),
        ({"generationConfig": {"temperature": "hot"}}, "temperature"),
        ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "responseModalities"),
        ({"generationConfig": {"responseLogprobs": True}}, "responseLogprobs"),
    ],
)
def test_what_cannot_be_translated_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        asked(**{"contents": None, **fields})
    assert refused.value.param == param


USAGE = {
    "prompt_tokens": 14,
    "completion_tokens": 7,
    "total_tokens": 21,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
MADE = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}
SAID = {"role": "assistant", "content": "ok", "reasoning_content": "hm", "tool_calls": [MADE]}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": SAID, "finish_reason": "tool_calls"}],
    "usage": USAGE,
}
METADATA = {
    "promptTokenCount": 14,
    "candidatesTokenCount": 4,
    "totalTokenCount": 21,
    "cachedContentTokenCount": 5,
    "thoughtsTokenCount": 3,
}
CALLED = {"functionCall": {"id": "c1", "name": "look", "args": {"at": 1}}}


@pytest.mark.parametrize("shows", [True, False])
def test_an_answer_has_parts_and_a_count(shows: bool) -> None:
    request = asked(generationConfig={"thinkingConfig": {"includeThoughts": shows}})
    plain = wire("gemini_generate", "openai_chat").plain(request, orjson.dumps(COMPLETION))
    thought = [{"text": "hm", "thought": True}] if shows else []
    assert orjson.loads(plain.body) == {
        "candidates": [
            {
                "content": {"role": "model", "parts": [*thought, {"text": "ok"}, CALLED]},
                "index": 0,
                "finishReason": "STOP",
            }
        ],
        "modelVersion": "m",
        "responseId": "chatcmpl-1",
        "usageMetadata": METADATA,
    }


@pytest.mark.parametrize(
    ("finish", "theirs"), [("length", "MAX_TOKENS"), ("content_filter", "SAFETY"), ("stop", "STOP")]
)
def test_finish_reasons(finish: str, theirs: str) -> None:
    completion = {**COMPLETION, "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": finish}]}
    plain = wire("gemini_generate", "openai_chat").plain(asked(), orjson.dumps(completion))
    assert orjson.loads(plain.body)["candidates"][0]["finishReason"] == theirs


def events(data: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: ")]


def test_a_stream_has_texts_as_they_come_and_calls_when_they_are_whole() -> None:
    reader = wire("gemini_generate", "openai_chat").reader(asked(path=STREAM))
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at"'}}
    second = {"index": 0, "function": {"arguments": ":1}"}}
    usage = b'data: {"choices":[],"usage":%b}\n\n' % orjson.dumps(USAGE)
    calls = (chunk({"tool_calls": [piece]}) for piece in (first, second))
    pieces = (text("Hel"), text("lo"), *calls, STOP, usage, b"data: [DONE]\n\n")
    data = b"".join(reader.feed(piece) for piece in pieces)
    reader.eof()
    assert [event["candidates"][0]["content"]["parts"] for event in events(data)] == [
        [{"text": "Hel"}],
        [{"text": "lo"}],
    ]
    (last,) = events(reader.ending)
    assert last["candidates"][0]["content"]["parts"] == [CALLED]
    assert (last["candidates"][0]["finishReason"], last["usageMetadata"]) == ("STOP", METADATA)


def test_a_stream_of_a_call_alone_begins_before_the_call_is_whole() -> None:
    reader = wire("gemini_generate", "openai_chat").reader(asked(path=STREAM))
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at"'}}
    assert reader.feed(chunk({"tool_calls": [call]}))


def test_a_stored_answer_is_replayed_as_a_stream() -> None:
    request = asked(path=STREAM)
    body = wire("gemini_generate", "openai_chat").plain(request, orjson.dumps(COMPLETION)).body
    stored = Replayed(request, body)
    assert stored.choices[0]["message"]["content"] == "ok"
    rest, ending = DIALECTS["gemini_generate"].replayed(request, orjson.loads(body))
    begun, ended = events(rest + ending)
    assert begun["candidates"][0]["content"]["parts"] == [{"text": "ok"}, CALLED]
    assert "finishReason" not in begun["candidates"][0]
    assert (ended["candidates"][0]["finishReason"], ended["usageMetadata"]) == ("STOP", METADATA)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadRequest("wrong", param="contents"), "INVALID_ARGUMENT"),
        (Forbidden("no"), "PERMISSION_DENIED"),
        (LimitExceeded("slow"), "RESOURCE_EXHAUSTED"),
        (Overloaded("later"), "UNAVAILABLE"),
    ],
)
def test_an_error_has_googles_shape(error: Any, status: str) -> None:
    told = orjson.loads(of_path(PATH).error_body(error, "req_1"))["error"]
    assert (told["code"], told["status"], told["details"][0]["reason"]) == (error.status, status, error.code)
    assert error.message in told["message"]
