"""Chat, embeddings and Ollama's own clients over Ollama's own API: requests, answers and streams back."""

from __future__ import annotations

from base64 import b64decode
from struct import unpack
from typing import Any

import orjson
import pytest

from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.dialects.registry import wire
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage, BadRequest, ContextTooLong, StreamBroken
from tests.dialects.test_ollama_chat import asked as ollama_asked
from tests.fakes.ollama import call, done, embedded, line, said, whole
from tests.support.requests import request_in

PIXEL = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"at": {"type": "number"}}, "required": ["at"]}
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "listen", "parameters": {"type": "object", "properties": {}}}}
MODEL = "llama3.2:3b"
COUNTED = Usage(14, output_tokens=4)


def asked(messages: list[dict[str, Any]] | None = None, **fields: Any) -> CompletionRequest:
    body = {"model": "auto", "messages": messages or [{"role": "user", "content": "hello"}], **fields}
    return openai_chat.parse(orjson.dumps(body), "req_7", Controls(), {})


def sent(request: CompletionRequest, plan: ContextPlan | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(wire(request.dialect, "ollama_chat").body(request, MODEL, plan, **more))
    return found


def streamed(request: CompletionRequest, *values: Any) -> tuple[bytes, Any]:
    """What a client gets for a stream of these lines, and the reader."""
    reader = wire(request.dialect, "ollama_chat").reader(request)
    got = b"".join([reader.feed(b"data: " + orjson.dumps(value) + b"\n\n") for value in values])
    reader.eof()
    return got + reader.ending, reader


def chunks(data: bytes) -> list[dict[str, Any]]:
    events = [event.removeprefix(b"data: ") for event in data.split(b"\n\n") if event]
    return [orjson.loads(event) for event in events if event != b"[DONE]"]


def deltas(data: bytes) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks(data) if chunk["choices"]]


def test_a_short_question_asks_the_server_to_refuse_rather_than_cut() -> None:
    assert sent(asked()) == {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hello"}],
        "stream": False,
        "truncate": False,
        "shift": False,
        "options": {},
    }
    assert sent(asked(stream=True))["stream"] is True
    assert sent(asked(max_tokens=50), max_output_tokens=9)["options"] == {"num_predict": 9}


def test_sampling_is_in_the_options() -> None:
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 3, "stop": "x", "max_tokens": 7}
    body = sent(asked(presence_penalty=0.5, frequency_penalty=0.25, keep_alive="10m", **fields))
    assert body["options"] == {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "stop": ["x"],
        "num_predict": 7,
    }
    assert body["keep_alive"] == "10m"


def test_calls_results_pictures_files_and_thoughts() -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    file = {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,bm90ZXM="}}
    arguments = '{"at": 12345678901234567890}'
    made = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    body = wire("openai_chat", "ollama_chat").body(
        asked(
            [
                {"role": "developer", "content": "Be brief"},
                {"role": "user", "content": [{"type": "text", "text": "see"}, picture, file]},
                {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [made]},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a tree"}]},
            ],
            tools=[TOOL],
        ),
        MODEL,
        None,
    )
    assert b"12345678901234567890" in body, "the bytes of a number are kept"
    system, user, assistant, result = orjson.loads(body)["messages"]
    assert system == {"role": "system", "content": "Be brief"}
    assert user == {"role": "user", "content": "see\na.txt\nnotes", "images": [PIXEL]}
    assert (assistant["content"], assistant["thinking"]) == ("", "hm")
    assert [(each["id"], each["function"]["name"]) for each in assistant["tool_calls"]] == [("c1", "look")]
    assert result == {"role": "tool", "content": "a tree", "tool_call_id": "c1", "tool_name": "look"}
    assert orjson.loads(body)["tools"] == [TOOL]


def test_two_calls_of_one_function_keep_their_results_apart() -> None:
    made = [{"id": i, "type": "function", "function": {"name": "look", "arguments": "{}"}} for i in ("a", "b")]
    results = [{"role": "tool", "tool_call_id": i, "content": f"of {i}"} for i in ("b", "a")]
    messages = sent(asked([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": made}, *results]))
    assert [(each["tool_call_id"], each["content"]) for each in messages["messages"][2:]] == [
        ("b", "of b"),
        ("a", "of a"),
    ]


def test_forms_and_efforts() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    assert sent(asked(response_format=form))["format"] == SCHEMA
    assert sent(asked(response_format={"type": "json_object"}))["format"] == "json"
    efforts = ["none", "minimal", "medium", "high", "xhigh"]
    thinks = [sent(asked(reasoning_effort=effort))["think"] for effort in efforts]
    assert thinks == [False, "low", "medium", "high", "high"]


@pytest.mark.parametrize("choice", [None, "auto", "required"])
def test_tools_are_offered(choice: Any) -> None:
    assert sent(asked(tools=[TOOL, OTHER], tool_choice=choice))["tools"] == [TOOL, OTHER]


def test_no_tools_are_offered_where_none_may_be_called() -> None:
    assert "tools" not in sent(asked(tools=[TOOL], tool_choice="none"))


NAMED = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(("tools", "choice"), [([TOOL, OTHER], NAMED), ([TOOL], "required")])
def test_a_forced_call_is_asked_for_as_a_structured_answer(tools: list[Any], choice: Any) -> None:
    request = asked(tools=tools, tool_choice=choice)
    body = sent(request)
    assert body["format"] == SCHEMA
    assert "look (Looks)" in body["messages"][0]["content"]
    assert "tools" not in body
    plain = wire("openai_chat", "ollama_chat").plain(request, orjson.dumps(whole('{"at": 1.50}')))
    (found,) = plain.choices
    assert found["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": 1.50}'}
    assert (found["message"]["content"], found["finish_reason"]) == (None, "tool_calls")
    got, reader = streamed(asked(tools=tools, tool_choice=choice, stream=True), said('{"at"'), said(": 2}"), done())
    calls = [each for delta in deltas(got) for each in delta.get("tool_calls", ())]
    assert "".join(each["function"]["arguments"] for each in calls) == '{"at": 2}'
    assert [each.get("function", {}).get("name") for each in calls] == ["look", None]
    assert reader.finish == "tool_calls"


def test_a_forced_call_that_was_cut_has_the_reason_length() -> None:
    request = asked(tools=[TOOL], tool_choice=NAMED)
    plain = wire("openai_chat", "ollama_chat").plain(request, orjson.dumps(whole('{"at": ', "length")))
    assert plain.finish == "length"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
    ],
)
def test_a_field_that_the_server_cannot_serve_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        sent(asked(**fields))
    assert refused.value.param == param


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ],
)
def test_content_that_the_server_cannot_read_is_named(part: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        sent(asked([{"role": "user", "content": [{"type": "text", "text": "x"}, part]}]))
    assert refused.value.param == "messages[0].content[1]"


def test_arguments_that_are_no_object_are_named() -> None:
    made = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "[1"}}
    with pytest.raises(BadRequest, match=r"tool_calls\[0\].function.arguments"):
        sent(asked([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [made]}]))


def test_a_plain_answer() -> None:
    request = asked()
    body = whole("ok", thinking="hm", tool_calls=[call("look", {"at": 1}), call("look", {"at": 1}, id="call_9")])
    plain = wire("openai_chat", "ollama_chat").plain(request, orjson.dumps(body))
    (found,) = plain.choices
    message = found["message"]
    assert (message["content"], message["reasoning_content"], found["finish_reason"]) == ("ok", "hm", "tool_calls")
    assert [each["id"] for each in message["tool_calls"]] == ["call_70", "call_9"]
    assert [each["function"]["arguments"] for each in message["tool_calls"]] == ['{"at":1}'] * 2
    assert plain.usage == COUNTED
    usage = orjson.loads(plain.body)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (14, 4, 18)


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length"), (None, "stop")])
def test_reasons_to_end(reason: Any, finish: str) -> None:
    plain = wire("openai_chat", "ollama_chat").plain(asked(), orjson.dumps(whole("ok", reason)))
    assert plain.finish == finish


LOGPROBS = [{"token": "ok", "logprob": -0.1, "bytes": [111, 107], "top_logprobs": []}]


def test_log_probabilities_are_asked_for_and_shown_only_to_clients_that_asked() -> None:
    assert sent(asked(logprobs=True, top_logprobs=2))["top_logprobs"] == 2
    assert sent(asked(), logprobs=True)["logprobs"] is True
    answer = orjson.dumps({**whole("ok"), "logprobs": LOGPROBS})
    hidden = wire("openai_chat", "ollama_chat").plain(asked(), answer)
    shown = wire("openai_chat", "ollama_chat").plain(asked(logprobs=True), answer)
    assert hidden.confidence == shown.confidence == pytest.approx(0.9048, abs=1e-4)
    assert [each.choices[0]["logprobs"] is None for each in (hidden, shown)] == [True, False]


@pytest.mark.parametrize(
    "body",
    [
        {"message": "text"},
        {"message": {"content": 5}},
        {"message": {"content": "", "tool_calls": [{"function": {}}]}},
        {"message": {"content": "", "tool_calls": [{"function": {"name": None}}]}},
        {"error": "model runner has unexpectedly stopped"},
        [],
    ],
)
def test_an_answer_of_another_kind_is_garbage(body: Any) -> None:
    with pytest.raises(BackendGarbage):
        wire("openai_chat", "ollama_chat").plain(asked(), orjson.dumps(body))


def test_a_stream_with_thoughts_calls_and_usage() -> None:
    request = asked(stream=True, stream_options={"include_usage": True})
    same = [call("look", {"at": 1}, id="x"), call("look", {"at": 2}, id="x")]
    got, reader = streamed(
        request, said(thinking="hm"), said("grüße 😀"), said(tool_calls=same[:1]), said(tool_calls=same[1:]), done()
    )
    assert got.endswith(b"data: [DONE]\n\n")
    found = deltas(got)
    assert found[0] == {"role": "assistant", "reasoning_content": "hm"}
    assert found[1] == {"content": "grüße 😀"}
    calls = [each for delta in found for each in delta.get("tool_calls", ())]
    assert [(each["index"], each["id"]) for each in calls] == [(0, "x"), (1, "call_71")], "no id occurs twice"
    assert chunks(got)[-1]["usage"]["total_tokens"] == 18
    assert (reader.finish, reader.usage, reader.ended) == ("tool_calls", COUNTED, True)
    message = orjson.loads(reader.completion())["choices"][0]["message"]
    assert [each["function"]["arguments"] for each in message["tool_calls"]] == ['{"at":1}', '{"at":2}']


@pytest.mark.parametrize("fields", [{}, {"tools": [TOOL], "tool_choice": NAMED}, {"logprobs": True}])
def test_lines_that_arrive_together_are_read_as_one_by_one(fields: dict[str, Any]) -> None:
    texts = [said('{"at"'), said(": "), said("1"), said(thinking="hm"), {**said("}"), "logprobs": LOGPROBS}, done()]
    one_by_one, _ = streamed(asked(stream=True, **fields), *texts)
    reader = wire("openai_chat", "ollama_chat").reader(asked(stream=True, **fields))
    together = reader.feed(b"".join([b"data: " + orjson.dumps(each) + b"\n\n" for each in texts]))
    reader.eof()
    assert deltas(together + reader.ending) == deltas(one_by_one)
    assert reader.chunks == 6


def test_confidence_of_a_stream() -> None:
    _, reader = streamed(asked(stream=True, logprobs=True), {**said("ok"), "logprobs": LOGPROBS}, done())
    assert reader.confidence == pytest.approx(0.9048, abs=1e-4)


def test_a_stream_without_its_last_line_is_broken() -> None:
    reader = wire("openai_chat", "ollama_chat").reader(asked(stream=True))
    assert reader.feed(b"data: " + line(said("half")) + b"\ndata: " + line(said(" line"))[:20])
    with pytest.raises(StreamBroken):
        reader.eof()
    assert reader.usage is None


def test_a_last_line_without_its_line_break_counts() -> None:
    reader = wire("openai_chat", "ollama_chat").reader(asked(stream=True))
    reader.feed(b"data: " + line(said("all")) + b"\ndata: " + orjson.dumps(done()))
    reader.eof()
    assert (reader.usage, reader.finish) == (COUNTED, "stop")
    assert reader.ending.endswith(b"[DONE]\n\n")


@pytest.mark.parametrize("first", [True, False])
def test_an_error_in_a_stream_breaks_it_with_its_text(first: bool) -> None:
    reader = wire("openai_chat", "ollama_chat").reader(asked(stream=True))
    if not first:
        assert reader.feed(b"data: " + line(said("half")) + b"\n")
    with pytest.raises(StreamBroken, match="CUDA error"):
        reader.feed(b"data: " + line({"error": "CUDA error: out of memory"}) + b"\n")


@pytest.mark.parametrize("junk", [b"<html>", b"[1]", b'{"message": 5}', b'{"message": {"content": 5}}', b'"x"'])
def test_a_line_of_another_kind_is_garbage(junk: bytes) -> None:
    reader = wire("openai_chat", "ollama_chat").reader(asked(stream=True))
    with pytest.raises(BackendGarbage):
        reader.feed(b"data: " + junk + b"\n\n")


NESTED = {
    "error": {
        "code": 400,
        "message": "request (2622 tokens) exceeds the available context size (512 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_ctx": 512,
    }
}


@pytest.mark.parametrize(
    "body",
    [
        {"error": "the input length exceeds the context length"},
        {"error": orjson.dumps(NESTED).decode()},
        {"error": "prompt is too long"},
    ],
)
def test_a_prompt_that_does_not_fit_is_recognised(body: Any) -> None:
    refused = wire("openai_chat", "ollama_chat").refusal(400, orjson.dumps(body), "b")
    assert refused.code == ContextTooLong.code
    assert not refused.message.startswith("{")


@pytest.mark.parametrize("body", [b'{"error": "llama3.2 does not support thinking"}', b"<html>", b'{"error": "{x"}'])
def test_other_refusals_are_not_about_the_window(body: bytes) -> None:
    refused = wire("openai_chat", "ollama_chat").refusal(400, body, "b")
    assert refused.code != ContextTooLong.code


def test_a_client_of_ollama_passes_its_own_fields() -> None:
    options = {"temperature": 0.5, "num_ctx": 2048, "top_k": 5, "mirostat": 1, "num_predict": 50}
    request = ollama_asked(
        [{"role": "user", "content": "see", "images": [PIXEL]}],
        options=options, keep_alive="10m", think=True, format=SCHEMA, truncate=True, tools=[TOOL],
    )  # fmt: skip
    body = sent(request, max_output_tokens=9)
    assert body == {
        "model": MODEL,
        "messages": [{"role": "user", "content": "see", "images": [PIXEL]}],
        "stream": True,
        "truncate": True,
        "shift": False,
        "options": {**options, "num_predict": 9},
        "keep_alive": "10m",
        "think": True,
        "format": SCHEMA,
        "tools": [TOOL],
    }


def test_trimmed_messages_are_left_out_for_a_client_of_ollama_too() -> None:
    messages = [{"role": "user", "content": text} for text in ("old", "new")]
    plan = ContextPlan(9, 5, drop=frozenset({0}))
    assert [each["content"] for each in sent(ollama_asked(messages), plan)["messages"]] == ["new"]


def test_options_that_chat_lacks_split_the_cache_and_reach_no_other_backend() -> None:
    plain, special = ollama_asked(), ollama_asked(options={"top_k": 5}, keep_alive="1m")
    assert plain.body != special.body
    for backend in ("openai_chat", "anthropic_messages", "gemini_generate"):
        body = wire("ollama_chat", backend).body(special, MODEL, None)
        assert body == wire("ollama_chat", backend).body(plain, MODEL, None)


def test_a_client_of_ollama_gets_the_servers_lines() -> None:
    sent_lines = [said("grüße"), said(tool_calls=[call("look", {"at": 1})]), done()]
    got, reader = streamed(ollama_asked(), *sent_lines)
    assert [orjson.loads(each) for each in got.splitlines()] == sent_lines
    assert orjson.loads(reader.ending) == sent_lines[-1], "the last line waits until the answer is booked"
    assert (reader.usage, reader.finish) == (COUNTED, "tool_calls")
    stored = orjson.loads(reader.completion())
    assert (stored["message"]["content"], stored["prompt_eval_count"], stored["done"]) == ("grüße", 14, True)
    cut = orjson.loads(reader.cut(Usage(14, output_tokens=2)))
    assert (cut["done_reason"], cut["eval_count"]) == ("length", 2)
    answer = orjson.dumps(whole("ok"))
    assert wire("ollama_chat", "ollama_chat").plain(ollama_asked(stream=False), answer).body == answer


def test_log_probabilities_that_only_the_gateway_asked_for_are_not_shown_to_a_client_of_ollama() -> None:
    plain = wire("ollama_chat", "ollama_chat").plain(
        ollama_asked(stream=False), orjson.dumps({**whole("ok"), "logprobs": LOGPROBS})
    )
    assert plain.confidence == pytest.approx(0.9048, abs=1e-4)
    assert orjson.loads(plain.body) == whole("ok")


@pytest.mark.parametrize("given", ["one", ["one", "three"]])
def test_embeddings(given: Any) -> None:
    request = request_in("openai_embeddings", given, dimensions=2)
    translator = wire("openai_embeddings", "ollama_chat")
    assert orjson.loads(translator.body(request, MODEL, None)) == {
        "model": MODEL,
        "input": given,
        "truncate": False,
        "options": {},
        "dimensions": 2,
    }
    plain = translator.plain(request, orjson.dumps(embedded(given)))
    assert plain.usage == Usage(3)
    read = orjson.loads(plain.body)
    assert [each["embedding"][0] for each in read["data"]] == ([3.0] if given == "one" else [3.0, 5.0])
    assert read["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


def test_embeddings_in_base64() -> None:
    request = request_in("openai_embeddings", "one", encoding_format="base64")
    plain = wire("openai_embeddings", "ollama_chat").plain(request, orjson.dumps(embedded("one")))
    assert unpack("<2f", b64decode(orjson.loads(plain.body)["data"][0]["embedding"])) == (3.0, 0.5)


def test_embeddings_of_tokens_are_refused() -> None:
    with pytest.raises(BadRequest, match="not tokens"):
        sent(request_in("openai_embeddings", [[1, 2]]))


@pytest.mark.parametrize("body", [{"embeddings": []}, {"embeddings": 5}, {"data": []}, {"embeddings": [["x"]]}])
def test_vectors_that_are_missing_or_wrong_are_garbage(body: Any) -> None:
    request = request_in("openai_embeddings", "one", encoding_format="base64")
    with pytest.raises(BackendGarbage):
        wire("openai_embeddings", "ollama_chat").plain(request, orjson.dumps(body))
