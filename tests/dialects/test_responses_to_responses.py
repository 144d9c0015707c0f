"""OpenAI Responses over Responses: the client's bytes and the backend's, with only what must change changed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from gateway.context.strategies.experiments import varied
from gateway.dialects.openai_responses.native import ResponsesToResponses
from gateway.dialects.openai_responses.relay import ResponsesRelay
from gateway.dialects.openai_responses.request import parse
from gateway.dialects.openai_responses.thinking import pack
from gateway.dialects.openai_responses.transcript import ResponsesTranscript
from gateway.dialects.streams.sse import events
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage, BadRequest, StreamBroken
from tests.dialects.samples import cut, events_of, golden, read, read_until_broken, steady
from tests.support.requests import responses_request

wire = ResponsesToResponses()
RAW = b'{ "model":"auto", "input":[ {"role":"user","content":"caf\\u00e9 \\/"} ],"store":false,"x":null,"y":1E2}'
GOLDEN: dict[str, tuple[str, str, Usage]] = {
    "openai_responses.sse": (
        "stop",
        "**Weighing the question****Answering**\n\nBriefly."
        'Hola, "señor"\n😀 error [DONE] response.completed\\ "delta":"x"',
        Usage(input_tokens=24, cached_tokens=1000, output_tokens=10, reasoning_tokens=20),
    ),
    "openai_responses_tools.sse": (
        "tool_calls",
        'Let me look.\nweather\n{"city": "Bilbao" }\ntime\n{}\nshell\nls -l "a"',
        Usage(input_tokens=80, output_tokens=41),
    ),
    "openai_responses_incomplete.sse": ("length", "t0 t1", Usage(input_tokens=9, output_tokens=2)),
    "openai_responses_refusal.sse": ("stop", "I'm sorry.", Usage(input_tokens=9, output_tokens=3)),
    "vllm_responses.sse": (
        "stop",
        "Two plus two.4 — four",
        Usage(input_tokens=6, cached_tokens=64, output_tokens=7, reasoning_tokens=5),
    ),
}


def unstored_request(raw: bytes | None = None, **fields: Any) -> CompletionRequest:
    """A Responses request that is not to be stored; `raw` as it is, or a small one with `fields`."""
    return responses_request(raw=raw, **{"store": False, **fields})


def sent(request: CompletionRequest, plan: ContextPlan | None = None, **options: Any) -> dict[str, Any]:
    return dict(orjson.loads(wire.body(request, "auto", plan, **options)))


def test_with_nothing_to_change_the_very_bytes_go_on() -> None:
    request = unstored_request(RAW)
    assert wire.body(request, "auto", None) is RAW
    assert wire.body(request, "auto", ContextPlan(10, 10)) is RAW


def test_only_the_models_name_changes() -> None:
    assert wire.body(unstored_request(RAW), 'qu"en', None) == RAW.replace(b'"auto"', b'"qu\\"en"')


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"store": True}, {"store": False}),
        ({"store": None}, {"store": False}),
        ({"store": True, "reasoning": {}}, {"store": False}),
        (
            {"store": True, "reasoning": {"effort": "low"}},
            {"store": False, "include": ["reasoning.encrypted_content"]},
        ),
        (
            {"store": True, "reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]},
            {"store": False},
        ),
        ({"reasoning": {"effort": "low"}}, {}),
    ],
)
def test_the_backend_stores_nothing(fields: dict[str, Any], changed: dict[str, Any]) -> None:
    request = unstored_request(**fields)
    assert sent(request) == {**request.body, **changed}


def test_a_response_that_nobody_put_in_is_not_silently_forgotten() -> None:
    with pytest.raises(BadRequest) as caught:
        sent(unstored_request(previous_response_id="resp_1"))
    assert caught.value.param == "previous_response_id"


def test_storing_is_refused_where_the_client_did_not_speak_of_it() -> None:
    raw = b'{"model":"m","input": "hello" ,"y":1.0}'
    assert wire.body(unstored_request(raw), "m", None) == b'{"store":false,"model":"m","input": "hello" ,"y":1.0}'


def test_an_output_limit_is_the_gateways_if_it_has_one() -> None:
    assert sent(unstored_request(max_output_tokens=50), max_output_tokens=9)["max_output_tokens"] == 9
    assert sent(unstored_request(), max_output_tokens=9)["max_output_tokens"] == 9
    assert "max_output_tokens" not in sent(unstored_request())


def test_trimmed_context_keeps_the_other_items_in_their_own_bytes() -> None:
    raw = (
        b'{"model":"m","store":false,"instructions":"long","input":[{"role" : "developer","content":"a\\u00e9"} ,'
        b'{"role":"user","content":"old"},{"type":"reasoning","id":"rs","encrypted_content":"s","summary":[]},'
        b'{"type":"function_call","call_id":"c","name":"f","arguments":"{ }"},'
        b'{"type":"function_call_output","call_id":"c","output":"a long one"},'
        b'{"role":"user","content":[{"type":"input_text","text":"long"},{"type":"input_image","image_url":"u"}]},'
        b'{"role":"user","content":"last", "z":1.0}],"seed":1.0}'
    )
    plan = ContextPlan(100, 50, drop=frozenset({1}), replace={-1: "brief", 4: "short", 5: "cut"})
    body = wire.body(unstored_request(raw), "m", plan)
    assert body.startswith(
        b'{"model":"m","store":false,"instructions":"brief","input":[{"role" : "developer","content":"a\\u00e9"},'
        b'{"type":"reasoning","id":"rs","encrypted_content":"s","summary":[]},'
        b'{"type":"function_call","call_id":"c","name":"f","arguments":"{ }"},'
        b'{"type":"function_call_output","call_id":"c","output":"short"},'
    )
    assert body.endswith(b'{"role":"user","content":"last", "z":1.0}],"seed":1.0}')
    assert {part.get("text") for part in orjson.loads(body)["input"][4]["content"]} == {"cut", None}
    gone = orjson.loads(wire.body(unstored_request(raw), "m", ContextPlan(100, 50, drop=frozenset({-1, 3, 4}))))
    assert gone["instructions"] is None
    assert [item.get("type", item.get("role")) for item in gone["input"]] == ["developer", "user", "user", "user"]
    assert sent(unstored_request(input="a long one"), ContextPlan(9, 5, replace={0: "short"}))["input"] == "short"


def test_reasoning_that_the_backend_cannot_know_stays_here() -> None:
    """Summaries are of no use without what is sealed, and another vendor's seal is none."""
    thinking = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": pack(thinking)},
        {"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "reasoning", "id": "rs_4", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "user", "content": "hello"},
    ]
    assert sent(unstored_request(input=items))["input"] == items[2:]


def test_the_clients_key_does_not_go_on() -> None:
    given_headers = {b"authorization": b"Bearer tg-client", b"openai-beta": b"x=1", b"x-api-key": b"tg-client"}
    request = parse(RAW, "r", Controls(), given_headers)
    assert list(wire.forwarded(request)) == [(b"openai-beta", b"x=1")]


def test_a_whole_answer_is_passed_on_as_it_came() -> None:
    body = golden("openai_responses.json")
    Response.model_validate_json(body)
    plain = wire.plain(unstored_request(), body)
    assert plain.body is body
    assert (plain.finish, plain.usage) == ("stop", GOLDEN["openai_responses.sse"][2])
    assert plain.choices[0]["message"]["content"].startswith("Hola")
    assert plain.text.startswith("**Weighing the question**\n\n**Answering**")


def test_log_probabilities_that_only_the_gateway_wants_are_taken_out_again() -> None:
    assert sent(unstored_request(), logprobs=True)["include"] == ["message.output_text.logprobs"]
    wanted = unstored_request(include=["message.output_text.logprobs"])
    assert wire.body(wanted, "auto", None, logprobs=True) is wanted.raw
    row = b'{"token":"a","logprob":0.0,"bytes":[97],"top_logprobs":[]}'
    body = b'{"output":[{"type":"reasoning","content":null},{"type":"message","content":'
    body += b'[{"type":"output_text","text":"a", "logprobs": [%s]}]}],"status":"completed","z":1.0}'
    plain = wire.plain(unstored_request(), body % row)
    assert (plain.body, plain.confidence) == (body % b"", 1.0)
    assert wire.plain(wanted, body % row).body == body % row


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"{}",
        b'{"output":"x"}',
        b'{"output":[],"status":"failed"}',
        b'{"output":[],"status":"queued"}',
        b'{"output":[],"status":"failed","error":{"code":"server_error","message":"no breath"}}',
        b'{"output":[{"type":"message","content":7}]}',
        b'{"choices":[]}',
    ],
)
def test_what_is_no_whole_response_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        wire.plain(unstored_request(), body)


def reader(**fields: Any) -> ResponsesRelay:
    return wire.reader(unstored_request(stream=True, **fields))


def last(name: str) -> bytes:
    """The event that ends a golden stream."""
    return [one for one in events(golden(name)) if b"[DONE]\n\n" not in one[:20]][-1]


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("size", [1, 7, 100, 10**6])
def test_golden_streams_are_relayed_as_they_came(name: str, size: int) -> None:
    stream, (finish, said, usage) = golden(name), GOLDEN[name]
    relay = reader()
    relayed = read(relay, [stream[i : i + size] for i in range(0, len(stream), size)])
    assert relayed + relay.ending == stream[: stream.index(last(name))] + last(name)
    assert (relay.ended, relay.finish, relay.usage) == (True, finish, usage)
    assert relay.delivered_text() == said
    assert relay.delivered_characters() == len(said)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_plain_body_of_a_stream_is_what_its_last_event_says(name: str) -> None:
    relay = reader()
    read(relay, [golden(name)])
    completion = relay.completion()
    assert completion is not None
    assert completion in golden(name)
    assert orjson.loads(completion) == events_of(golden(name))[-1]["response"]
    plain = wire.plain(unstored_request(), completion)
    assert (plain.finish, plain.usage) == (relay.finish, relay.usage)


@steady
@given(st.sampled_from([*GOLDEN, "openai_responses_failed.sse"]), st.lists(st.integers(0, 9000)))
def test_any_split_of_the_bytes_gives_the_same(name: str, at: list[int]) -> None:
    assert outcome(cut(golden(name), at)) == outcome([golden(name)])


def test_a_long_answer_is_kept_and_one_without_measure_is_not() -> None:
    def kept(text: str) -> bytes | None:
        relay = reader()
        read(relay, [DELTA, event({"type": "response.completed", "response": {"output": [{}], "id": text}})])
        return relay.completion()

    assert len(kept("long" * 100_000) or b"") > 400_000
    assert kept("long" * 1_100_000) is None


def outcome(pieces: list[bytes]) -> tuple[Any, ...]:
    relay = reader()
    relayed, failure = read_until_broken(relay, pieces)
    told = (relay.chunks, relay.silent, relay.delivered_text())
    return relayed, failure, relay.usage, relay.finish, relay.completion(), relay.ending, *told


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["error", '"delta":"x"', "[DONE]", "response.completed", "\\", '\\"', "\n\n", "data: "]
)
KIND = st.sampled_from(["output_text", "refusal", "reasoning_summary_text", "function_call_arguments"])


@steady
@given(st.lists(st.tuples(KIND, TEXT), max_size=30), st.booleans(), st.lists(st.integers(0, 4000)))
def test_what_was_said_is_found_without_reading_as_it_is_with_reading(
    said: list[tuple[str, str]], spaced: bool, at: list[int]
) -> None:
    """The search of bytes against the slow way: every event parsed."""
    deltas: list[dict[str, Any]] = [
        {"type": f"response.{kind}.delta", "delta": text, "n": [{"x": text}]} for kind, text in said
    ]
    stream = b"".join(event(delta, spaced=spaced) for delta in [{"type": "response.created"}, *deltas])
    relay = reader()
    assert b"".join(relay.feed(piece) for piece in cut(stream, at)) == stream
    assert relay.delivered_text() == "".join(text for _, text in said)
    assert (relay.chunks, relay.silent, relay.ended) == (len(said) + 1, 1, False)


def event(said: dict[str, Any], *, spaced: bool = False) -> bytes:
    data = orjson.dumps(said)
    if spaced:
        data = data.replace(b'"delta":"', b'"delta": "', 1)
    return b"event: %s\ndata: %s\n\n" % (said["type"].encode(), data)


COMPLETED = event({"type": "response.completed", "response": {"output": [], "status": "completed"}})
DELTA = event({"type": "response.output_text.delta", "delta": "a"})


def test_what_begins_is_passed_on_at_once_and_is_no_content() -> None:
    relay = reader()
    created = event({"type": "response.created", "response": {"id": "r"}})
    assert relay.feed(created) == created
    assert (relay.chunks, relay.silent) == (1, 1)


def test_nothing_follows_the_end() -> None:
    relay = reader()
    assert relay.feed(DELTA + COMPLETED + DELTA + COMPLETED) == DELTA
    assert relay.feed(DELTA) == b""
    assert relay.ending == COMPLETED


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (golden("openai_responses_failed.sse"), "out of breath"),
        (event({"type": "error", "code": "server_error", "message": "broke", "param": None}), "broke"),
        (event({"type": "error", "error": {"type": "server_error", "message": "broke"}}), "broke"),
        (b'data: {"error": {"message": "broke"}}\n\n', "broke"),
        (b"event: error\ndata: broke\n\n", "broke"),
        (b"event: error\ndata: broke", "broke"),
        (event({"type": "response.failed", "response": {"id": "r"}}), "response.failed"),
        (DELTA, "before the answer was complete"),
        (DELTA + COMPLETED[:-20], "before the answer was complete"),
        (DELTA + b"data: [DONE]\n\n", "before the answer was complete"),
    ],
)
def test_a_stream_that_does_not_complete_is_broken(broken: bytes, words: str) -> None:
    relay = reader()
    with pytest.raises(StreamBroken, match=words):
        read(relay, [broken])
    assert (relay.ended, relay.ending, relay.completion()) == (False, b"", None)


def test_the_last_event_counts_without_its_blank_line_too() -> None:
    relay = reader()
    assert read(relay, [DELTA, COMPLETED.rstrip()]) == DELTA
    assert (relay.ended, relay.ending, relay.finish) == (True, COMPLETED.rstrip(), "stop")


@pytest.mark.parametrize("body", [b"<html>", b'{"output":[]}', b'data: {"type":"response.completed","response":7}\n\n'])
def test_what_is_no_stream_is_garbage(body: bytes) -> None:
    relay = reader()
    with pytest.raises(BackendGarbage):
        read(relay, [body])


@pytest.mark.parametrize("odd", [b"data: not json\n\n", b'event: x\ndata: {"type": "resp\n\n', b"data: [1]\n\n"])
def test_an_unreadable_event_breaks_the_stream_after_what_came_before_it(odd: bytes) -> None:
    for pieces in ([DELTA + odd + DELTA + COMPLETED, DELTA], [DELTA, odd]):
        relay = reader()
        relayed: list[bytes] = []
        with pytest.raises(BackendGarbage, match="not one of a response"):
            relayed.extend(map(relay.feed, pieces))
        assert (b"".join(relayed), relay.ended, relay.ending) == (DELTA, False, b"")


TOLD = {"store": True, "previous_response_id": "resp_0"}


def test_the_answer_says_what_was_asked_of_the_gateway_and_not_of_the_backend() -> None:
    request = unstored_request(store=True)
    request.echoed = TOLD
    body = b'{ "id":"resp_1", "store": false,"previous_response_id":null, "x":1.0,"status":"completed","output":[] }'
    said = wire.plain(request, body).body
    assert said == body.replace(b"false", b"true").replace(b"null", b'"resp_0"')
    request.echoed = {"store": False, "previous_response_id": None}
    assert wire.plain(request, body).body == body


def test_a_stream_says_what_was_asked_of_the_gateway_and_not_of_the_backend() -> None:
    request = unstored_request(store=True, stream=True)
    request.echoed = TOLD
    relay = wire.reader(request)
    response = {"id": "resp_1", "store": False, "previous_response_id": None, "output": [{}], "status": "completed"}
    named = [event({"type": f"response.{name}", "response": response}) for name in ("created", "in_progress")]
    last = event({"type": "response.completed", "response": response})
    odd = event({"type": "response.new", "response": "r"})
    relayed = read(relay, [named[0], named[1] + DELTA, odd, last])
    for sent in (*named, last):
        assert sent.count(b"false") == sent.count(b"null") == 1
    told = [sent.replace(b"false", b"true").replace(b"null", b'"resp_0"') for sent in (*named, last)]
    assert relayed == told[0] + told[1] + DELTA + odd
    assert relay.ending == told[2]
    assert orjson.loads(relay.completion() or b"") == response | TOLD


def test_sureness_is_read_from_the_end_when_the_client_asked_for_it() -> None:
    part = {"type": "output_text", "text": "a", "logprobs": [{"token": "a", "logprob": 0.0}]}
    response = {"output": [{"type": "message", "content": [part]}], "status": "completed"}
    whole = event({"type": "response.completed", "response": response})
    asking, silent = reader(include=["message.output_text.logprobs"]), reader()
    for relay in (asking, silent):
        read(relay, [DELTA + whole])
    assert (asking.confidence, silent.confidence) == (1.0, None)


def test_of_a_long_answer_only_the_beginning_is_kept() -> None:
    transcript = ResponsesTranscript()
    for _ in range(100):
        transcript.add(event({"type": "response.output_text.delta", "delta": "x" * 2000}))
    assert transcript.characters == 200_000
    assert transcript.text() == "x" * 65536
    assert transcript.chunks == 100


def test_a_text_that_is_not_valid_json_is_counted_and_does_not_spoil_the_texts_beside_it() -> None:
    transcript = ResponsesTranscript()
    for text in (b'a"', rb'\x"', b"has no end", b'b"'):
        transcript.add(b'data: {"delta":"%b}\n\n' % text)
    transcript.add_text("\nname\n")
    assert transcript.text() == "a xb\nname\n"


@pytest.mark.parametrize("given", [{"instructions": "Be kind."}, {"instructions": None}, {}])
@pytest.mark.parametrize("stream", [True, False])
def test_the_answer_shows_the_instructions_of_the_client_and_not_those_that_were_sent(
    given: dict[str, Any], *, stream: bool
) -> None:
    request = varied(unstored_request(stream=stream, **given), "SECRET")
    assert "SECRET" in sent(request)["instructions"]
    response = {"id": "resp_1", **sent(request), "output": [], "status": "completed"}
    if stream:
        relay = wire.reader(request)
        read(relay, [event({"type": "response.completed", "response": response})])
        shown = orjson.loads(relay.ending[relay.ending.index(b"{") :])["response"]
    else:
        shown = orjson.loads(wire.plain(request, orjson.dumps(response)).body)
    assert shown == {**response, "instructions": given.get("instructions")}
