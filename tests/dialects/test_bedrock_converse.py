"""Converse's clients: requests as chat, answers and event streams as botocore reads them, errors as AWS's."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from botocore.eventstream import EventStreamBuffer

from gateway.dialects.bedrock_converse.facts import key_in
from gateway.dialects.canonical import canonical
from gateway.dialects.clients import DIALECTS, at, of_path
from gateway.dialects.registry import wire
from gateway.dialects.replay import Replayed
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest, Forbidden, LimitExceeded, Overloaded, StreamBroken
from tests.dialects.samples import STOP, chunk, text

CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
PROFILE = "arn:aws:bedrock:us-east-1:1:inference-profile/a"
PATH, STREAM = "/model/auto/converse", "/model/auto/converse-stream"
HELLO = [{"role": "user", "content": [{"text": "hello"}]}]
SPEC = {"name": "look", "description": "d", "inputSchema": {"json": {"type": "object"}}}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 2048}}


def asked(messages: Any = HELLO, path: str = PATH, **fields: Any) -> CompletionRequest:
    dialect = at(path)
    assert dialect is not None
    return dialect.parse(orjson.dumps({"messages": messages, **fields}), "req_7", Controls(), {})


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        (PATH, "auto", False),
        (STREAM, "auto", True),
        (f"/model/{quote(CLAUDE, safe='')}/converse", CLAUDE, False),
        (f"/model/{PROFILE}/converse", PROFILE, False),
    ],
)
def test_a_path_names_the_model_and_the_operation(path: str, model: str, stream: bool) -> None:
    request = asked(path=path)
    assert (request.model, request.stream, request.dialect) == (model, stream, "bedrock_converse")


@pytest.mark.parametrize("path", ["/model/converse", "/v1/model/x/converse", "/model/x/converse/y"])
def test_other_paths_are_not_converses(path: str) -> None:
    assert at(path) is None


def test_a_request_is_a_chat_request() -> None:
    inference = {"maxTokens": 7, "temperature": 0.5, "topP": 0.9, "stopSequences": ["x"]}
    tools = {"tools": [{"toolSpec": SPEC}, {"cachePoint": {"type": "default"}}], "toolChoice": {"any": {}}}
    mark = {"cache_control": {"type": "ephemeral"}}
    request = asked(
        system=[{"text": "Be brief"}, {"cachePoint": {"type": "default"}}], inferenceConfig=inference, toolConfig=tools
    )
    system = [{"type": "text", "text": "Be brief", **mark}]
    function = {"name": "look", "description": "d", "parameters": {"type": "object"}}
    assert request.body == {
        "model": "auto",
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": "hello"}],
        "max_completion_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["x"],
        "tools": [{"type": "function", "function": function, **mark}],
        "tool_choice": "required",
    }
    assert (request.max_output_tokens, request.needs) == (7, frozenset({"tools"}))


PIXEL = b64encode(b"\x89PNG").decode()
CONVERSATION = [
    {"role": "user", "content": [{"text": "look"}, {"image": {"format": "png", "source": {"bytes": PIXEL}}}]},
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
            {"text": "ok"},
            {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"at": 1}}},
        ],
    },
    {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "a tree"}]}}, {"text": "and?"}],
    },
]


def test_from_converse_to_converse_a_conversation_stays() -> None:
    request = asked(
        CONVERSATION,
        inferenceConfig={"maxTokens": 4096},
        toolConfig={"tools": [{"toolSpec": SPEC}], "toolChoice": {"auto": {}}},
        additionalModelRequestFields=THINKS,
    )
    sent = orjson.loads(wire("bedrock_converse", "bedrock_converse").body(request, "anthropic.claude-sonnet-4-5", None))
    assert sent["messages"] == CONVERSATION
    assert sent["toolConfig"]["tools"] == [{"toolSpec": SPEC}]


POINT, HOUR = {"cachePoint": {"type": "default"}}, {"cachePoint": {"type": "default", "ttl": "1h"}}


def test_cache_points_stay_at_their_blocks_over_converse_and_become_marks_over_claude() -> None:
    call = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}, POINT]}
    result = {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "a tree"}]}}, POINT]}
    given = {
        "messages": [{"role": "user", "content": [{"text": "hello"}, POINT]}, call, result],
        "system": [{"text": "Be brief"}, HOUR],
        "toolConfig": {"tools": [{"toolSpec": SPEC}, POINT]},
    }
    request = asked(**given)
    sent = orjson.loads(wire("bedrock_converse", "bedrock_converse").body(request, "amazon.nova-pro-v1:0", None))
    assert (sent["messages"], sent["system"]) == (given["messages"], given["system"])
    assert sent["toolConfig"]["tools"] == given["toolConfig"]["tools"]
    claude = orjson.loads(
        wire("bedrock_converse", "anthropic_messages").body(asked(**given), "claude-sonnet-4-5", None)
    )
    assert claude["system"] == [
        {"type": "text", "text": "Be brief", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ]
    assert claude["tools"][0]["cache_control"] == {"type": "ephemeral"}
    assert [turn["content"][-1]["cache_control"] for turn in claude["messages"]] == [{"type": "ephemeral"}] * 3
    plain = wire("bedrock_converse", "openai_chat").body(asked(**given), "m", None)
    assert b"cache_control" not in plain


def test_fields_for_the_model_reach_converse_only_and_separate_answers() -> None:
    own = {"inferenceConfig": {"topK": 5}, "reasoningConfig": {"type": "enabled"}}
    request = asked(additionalModelRequestFields={**own, "top_k": 3})
    sent = orjson.loads(wire("bedrock_converse", "bedrock_converse").body(request, "amazon.nova-pro-v1:0", None))
    assert sent["additionalModelRequestFields"] == {**own, "top_k": 3}
    other = wire("bedrock_converse", "openai_chat").body(asked(additionalModelRequestFields=own), "m", None)
    assert orjson.loads(other) == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert canonical(asked(additionalModelRequestFields=own)) != canonical(asked())


def test_documents_and_results_with_json() -> None:
    content = [
        {"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBERi0="}}},
        {"document": {"format": "md", "name": "b", "source": {"bytes": b64encode(b"# hi").decode()}}},
    ]
    (message,) = asked([{"role": "user", "content": content}]).body["messages"]
    assert "application/pdf" in orjson.dumps(message["content"][0]).decode()
    assert message["content"][1:] == [{"type": "text", "text": "b"}, {"type": "text", "text": "# hi"}]
    call = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}]}
    result = {"toolUseId": "t1", "content": [{"json": {"a": 1}}], "status": "error"}
    *_, told = asked([*HELLO, call, {"role": "user", "content": [{"toolResult": result}]}]).body["messages"]
    assert (told["role"], told["tool_call_id"]) == ("tool", "t1")
    assert '{"a":1}' in told["content"]
    assert told["content"].startswith("Error")


def test_a_schema_is_a_response_format() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    given = {"jsonSchema": {"name": "answer", "schema": orjson.dumps(schema).decode()}}
    body = asked(outputConfig={"textFormat": {"type": "json_schema", "structure": given}}).body
    assert body["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"video": {}}]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"image": {"format": "png", "source": {"s3Location": {}}}}]}]},
            "messages[0].content[0]",
        ),
        ({"system": [{"guardContent": {}}]}, "system[0]"),
        ({"guardrailConfig": {"guardrailIdentifier": "g"}}, "guardrailConfig"),
        ({"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}}, "toolConfig.tools[0]"),
        ({"inferenceConfig": {"temperature": "hot"}}, "temperature"),
        ({"inferenceConfig": {"maxTokens": 0}}, "maxTokens"),
    ],
)
def test_what_cannot_be_translated_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        asked(**{"messages": HELLO, **fields})
    assert refused.value.param == param


@pytest.mark.parametrize("content", [5, [5], [None], [{"toolUse": 5}], [{"text": 5}], [{}]])
def test_odd_content_is_a_bad_request(content: Any) -> None:
    with pytest.raises(BadRequest):
        asked([{"role": "user", "content": content}])


USAGE = {
    "prompt_tokens": 14,
    "completion_tokens": 7,
    "total_tokens": 21,
    "prompt_tokens_details": {"cached_tokens": 5},
}
COUNTS = {"inputTokens": 9, "outputTokens": 7, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 0, "totalTokens": 21}
MADE = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}
SAID = {"role": "assistant", "content": "ok", "reasoning_content": "hm", "tool_calls": [MADE]}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": SAID, "finish_reason": "tool_calls"}],
    "usage": USAGE,
}
CALLED = {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"at": 1}}}


@pytest.mark.parametrize("thinks", [True, False])
def test_an_answer_has_blocks_counts_and_thoughts_where_they_were_asked_for(thinks: bool) -> None:
    request = asked(additionalModelRequestFields=THINKS if thinks else {})
    told = orjson.loads(wire("bedrock_converse", "openai_chat").plain(request, orjson.dumps(COMPLETION)).body)
    *thought, words, call = told["output"]["message"]["content"]
    assert [each["reasoningContent"]["reasoningText"]["text"] for each in thought] == (["hm"] if thinks else [])
    assert (words, call) == ({"text": "ok"}, CALLED)
    assert (told["stopReason"], told["usage"]) == ("tool_use", COUNTS)
    assert told["metrics"]["latencyMs"] >= 0


def heard(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream, by AWS's own reader."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    found = []
    for message in buffer:
        kind = message.headers.get(":event-type") or message.headers[":exception-type"]
        found.append((kind, orjson.loads(message.payload)))
    return found


def test_a_stream_has_events_that_aws_reads() -> None:
    reader = wire("bedrock_converse", "openai_chat").reader(asked(path=STREAM, additionalModelRequestFields=THINKS))
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at"'}}
    calls = (chunk({"tool_calls": [piece]}) for piece in (first, {"index": 0, "function": {"arguments": ":1}"}}))
    usage = b'data: {"choices":[],"usage":%b}\n\n' % orjson.dumps(USAGE)
    pieces = (chunk({"reasoning_content": "hm"}), text("Hel"), text("lo"), *calls, STOP, usage, b"data: [DONE]\n\n")
    data = b"".join(reader.feed(piece) for piece in pieces)
    reader.eof()
    events = heard(data + reader.ending)
    deltas = [value["delta"] for kind, value in events if kind == "contentBlockDelta"]
    assert deltas[0] == {"reasoningContent": {"text": "hm"}}
    assert [delta["text"] for delta in deltas if "text" in delta] == ["Hel", "lo"]
    assert "".join(delta["toolUse"]["input"] for delta in deltas if "toolUse" in delta) == '{"at":1}'
    assert [value["start"] for kind, value in events if kind == "contentBlockStart"] == [
        {"toolUse": {"toolUseId": "c1", "name": "look"}}
    ]
    assert events[0] == ("messageStart", {"role": "assistant"})
    assert [kind for kind, _ in events[-2:]] == ["messageStop", "metadata"]
    assert (events[-2][1]["stopReason"], events[-1][1]["usage"]) == ("tool_use", COUNTS)
    assert len(heard(reader.ending)) >= 2, "the end is sent after the money is settled"


def test_a_stored_answer_is_replayed_as_a_stream() -> None:
    request = asked(path=STREAM, additionalModelRequestFields=THINKS)
    body = wire("bedrock_converse", "openai_chat").plain(request, orjson.dumps(COMPLETION)).body
    stored = Replayed(request, body)
    assert stored.content_type == "application/vnd.amazon.eventstream"
    assert stored.choices[0]["message"]["tool_calls"] == [MADE]
    rest, ending = DIALECTS["bedrock_converse"].replayed(request, orjson.loads(body))
    events = heard(rest + ending)
    assert {"text": "ok"} in [value["delta"] for kind, value in events if kind == "contentBlockDelta"]
    assert [kind for kind, _ in heard(ending)] == ["messageStop", "metadata"]


@pytest.mark.parametrize(
    ("error", "kind", "in_stream"),
    [
        (BadRequest("x", param="system"), "ValidationException", "modelStreamErrorException"),
        (Forbidden("x"), "AccessDeniedException", "modelStreamErrorException"),
        (LimitExceeded("x"), "ThrottlingException", "throttlingException"),
        (Overloaded("x"), "ServiceUnavailableException", "serviceUnavailableException"),
        (StreamBroken("x"), "InternalServerException", "modelStreamErrorException"),
    ],
)
def test_errors_have_awss_names(error: Any, kind: str, in_stream: str) -> None:
    dialect = of_path(PATH)
    told = orjson.loads(dialect.error_body(error, "r"))
    assert (told["__type"], told["message"]) == (kind, "system: x" if error.param else "x")
    assert heard(dialect.error_event(error, "r")) == [(in_stream, {"message": told["message"]})]


def test_a_key_is_the_access_key_id_of_a_signature() -> None:
    signed = b"AWS4-HMAC-SHA256 Credential=tg-abc_def/20251124/eu-central-1/bedrock/aws4_request, SignedHeaders=host"
    assert key_in(signed) == b"tg-abc_def"
    assert key_in(b"Bearer tg-abc") == b""
    assert key_in(b"") == b""
