"""Ollama's clients: requests as chat, answers as its lines of JSON, models as its lists."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.client import VisibleModel
from gateway.dialects.clients import CLIENTS, DIALECTS, PATHS, of_path
from gateway.dialects.registry import wire
from gateway.dialects.replay import Replayed
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest, UnknownModel
from tests.dialects.samples import STOP, chunk, event, text

HELLO = [{"role": "user", "content": "hello"}]
PIXEL = "iVBORw0KGgo="


def asked(messages: Any = HELLO, **fields: Any) -> CompletionRequest:
    body = orjson.dumps({"model": "auto", "messages": messages, **fields})
    return PATHS["/api/chat"].parse(body, "req_7", Controls(), {})


def lines(data: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in data.splitlines()]


def test_a_request_is_a_chat_request_and_streams_unless_it_says_no() -> None:
    options = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "num_predict": 7, "stop": ["x"], "seed": 3, "num_ctx": 9}
    request = asked(stream=False, options=options, think="low", keep_alive="5m")
    assert request.body == {
        "model": "auto",
        "messages": HELLO,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
        "stop": ["x"],
        "max_completion_tokens": 7,
        "reasoning_effort": "low",
        "ollama": {"options": {"top_k": 5, "num_ctx": 9}},
    }
    assert (request.dialect, request.stream, request.max_output_tokens) == ("ollama_chat", False, 7)
    assert asked().stream
    assert asked(stream=None).stream


@pytest.mark.parametrize(("named", "model"), [("auto:latest", "auto"), ("llama3.2:3b", "llama3.2:3b")])
def test_the_default_tag_is_no_part_of_a_name(named: str, model: str) -> None:
    assert asked(model=named).model == model


@pytest.mark.parametrize("most", [-1, -2, 0])
def test_no_limit_is_none(most: int) -> None:
    assert asked(options={"num_predict": most}).max_output_tokens is None


CALLS = [{"function": {"name": "look", "arguments": {"at": 1}}}, {"id": "c9", "function": {"name": "look"}}]


def test_calls_and_results_belong_together_by_id_or_name_and_order() -> None:
    conversation = [
        {"role": "user", "content": "look", "images": [PIXEL]},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": CALLS},
        {"role": "tool", "content": "two", "tool_call_id": "c9"},
        {"role": "tool", "content": "one", "tool_name": "look"},
    ]
    picture, call, two, one = asked(conversation).body["messages"]
    assert picture["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    assert call["reasoning_content"] == "hm"
    assert [each["function"]["arguments"] for each in call["tool_calls"]] == ['{"at":1}', "{}"]
    assert [two["tool_call_id"], one["tool_call_id"]] == ["c9", call["tool_calls"][0]["id"]]


@pytest.mark.parametrize(
    ("form", "kind"), [("json", "json_object"), ({"type": "object"}, "json_schema"), ("", None), (None, None)]
)
def test_a_format_is_a_response_format(form: Any, kind: str | None) -> None:
    assert asked(format=form).body.get("response_format", {}).get("type") == kind


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [1]}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "images": ["AAAA"]}]}, "messages[0].images[0]"),
        ({"format": "xml"}, "format"),
        ({"options": {"temperature": "hot"}}, "temperature"),
        ({"logprobs": True}, "logprobs"),
        ({"model": ""}, "model"),
    ],
)
def test_what_cannot_be_translated_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        asked(**{"messages": HELLO, **fields})
    assert refused.value.param == param


USAGE = {"prompt_tokens": 14, "completion_tokens": 7, "total_tokens": 21}
MADE = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "ok", "reasoning_content": "hm", "tool_calls": [MADE]},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": USAGE,
}
CALLED = {"id": "c1", "function": {"index": 0, "name": "look", "arguments": {"at": 1}}}
HEAD = {"model": "auto", "created_at": "2023-11-14T22:13:20Z"}
END = {"done": True, "done_reason": "stop", "prompt_eval_count": 14, "eval_count": 7}


@pytest.mark.parametrize("think", [True, False])
def test_an_answer_has_calls_counts_and_thoughts_where_they_were_asked_for(think: bool) -> None:
    plain = wire("ollama_chat", "openai_chat").plain(asked(think=think), orjson.dumps(COMPLETION))
    thought = {"thinking": "hm"} if think else {}
    message = {"role": "assistant", "content": "ok", **thought, "tool_calls": [CALLED]}
    assert orjson.loads(plain.body) == {**HEAD, "message": message, **END}


def test_a_stream_has_texts_as_they_come_and_calls_when_they_are_whole() -> None:
    reader = wire("ollama_chat", "openai_chat").reader(asked())
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at"'}}
    calls = (chunk({"tool_calls": [piece]}) for piece in (first, {"index": 0, "function": {"arguments": ":1}"}}))
    usage = b'data: {"choices":[],"usage":%b}\n\n' % orjson.dumps(USAGE)
    pieces = (text("Hel"), text("lo"), *calls, STOP, usage, b"data: [DONE]\n\n")
    begun = lines(b"".join(reader.feed(piece) for piece in pieces))
    reader.eof()
    assert [(line["message"]["content"], line["done"]) for line in begun] == [("Hel", False), ("lo", False)]
    call, last = lines(reader.ending)
    assert (call["message"]["tool_calls"], call["done"]) == ([CALLED], False)
    assert (last["message"], {name: last[name] for name in END}) == ({"role": "assistant", "content": ""}, END)


def test_a_stored_answer_is_replayed_as_lines() -> None:
    request = asked()
    body = wire("ollama_chat", "openai_chat").plain(request, orjson.dumps(COMPLETION)).body
    stored = Replayed(request, body)
    assert stored.content_type == "application/x-ndjson"
    assert stored.choices[0]["message"]["tool_calls"] == [MADE]
    rest, ending = DIALECTS["ollama_chat"].replayed(request, orjson.loads(body))
    begun, ended = lines(rest + ending)
    assert (begun["message"]["tool_calls"], begun["done"]) == ([CALLED], False)
    assert {name: ended[name] for name in END} == END


@pytest.mark.parametrize("path", ["/api/chat", "/api/tags", "/api/pull"])
def test_errors_have_ollamas_shape(path: str) -> None:
    dialect = of_path(path)
    assert orjson.loads(dialect.error_body(BadRequest("x", param="think"), "r")) == {"error": "think: x"}
    assert lines(dialect.error_event(BadRequest("x"), "r")) == [{"error": "x"}]


MODELS = [VisibleModel("auto", None, frozenset()), VisibleModel("small", 8000, frozenset({"tools"}))]


def view(path: str, **asked: Any) -> dict[str, Any]:
    (found,) = (each for each in CLIENTS["ollama_chat"].views if each.path == path)
    return found.answer(MODELS, asked)


def test_models_are_listed_and_described() -> None:
    assert [model["name"] for model in view("/api/tags")["models"]] == ["auto", "small"]
    small = view("/api/show", model="small:latest")
    assert small["model_info"]["thriftgate.context_length"] == 8000
    assert small["capabilities"] == ["completion", "tools"]
    assert view("/api/show", name="auto")["capabilities"] == ["completion", "tools", "vision", "thinking"]
    with pytest.raises(UnknownModel):
        view("/api/show", model="large")


@pytest.mark.parametrize("client", ["openai_chat", "ollama_chat"])
def test_a_line_has_no_character_at_which_a_client_breaks_lines(client: str) -> None:
    said = "a\u2028b\u2029c\x85d"
    spoken = chunk({"content": said}), chunk({"content": said}) * 9, STOP
    if client == "ollama_chat":
        message = {"role": "assistant", "content": said}
        spoken = tuple(event({"message": message, "done": done}) for done in (False, False, True))
    reader = wire("ollama_chat", client).reader(asked())
    got = b"".join([reader.feed(piece) for piece in spoken])
    reader.eof()
    read = [orjson.loads(each)["message"]["content"] for each in (got + reader.ending).decode().splitlines()]
    assert read.count(said) == (10 if client == "openai_chat" else 3)
