"""Anthropic on both sides: bytes go through."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from anthropic.types import Message
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.anthropic_messages.assembly import MessageAssembly
from gateway.dialects.anthropic_messages.native import MessagesToMessages
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.domain.body_scan import UNSIGNED
from gateway.domain.money.usage import Usage
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage, ContextTooLong, StreamBroken
from tests.dialects.messages_samples import accumulated, said_in, strict
from tests.dialects.samples import cut, golden, read, steady
from tests.dialects.samples import named as event
from tests.support.requests import messages_request

wire = MessagesToMessages()

GOLDEN: dict[str, tuple[str, str, Usage | None]] = {
    "anthropic_tools.sse": (
        "tool_calls",
        'The user asks.\nVoy a mirar el tiempo.\nweather\n{"city": "Bilbao"}\ntime',
        Usage(25, 1000, 100, 20, output_tokens=49, reasoning_tokens=40),
    ),
    "llamacpp_messages.sse": ("stop", "I'm counting to five.", Usage(input_tokens=22, output_tokens=7)),
}

START = event(
    {
        "type": "message_start",
        "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "c", "content": [], "stop_reason": None,
            "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1},
        },
    }
)  # fmt: skip
END = event(
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    }
)
STOP = event({"type": "message_stop"})


def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    said = [{"type": "content_block_start", "index": index, "content_block": begun}]
    said += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return b"".join(map(event, [*said, {"type": "content_block_stop", "index": index}]))


def text_block(index: int, *texts: str) -> bytes:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in texts))


# -- requests ----------------------------------------------------------------------------------------------------------


RAW = (
    b'{ "model" : "auto", "max_tokens":64,\n "top_k": 5, "temperature": 1.0e0, "invented": {"a": [1.50, null]},'
    b' "messages": [ {"role":"user","content":"one"} , {"role":"assistant","content":"two"},'
    b'{"role":"user","content":[{"type":"text","text":"th\\u0072ee","cache_control":{"type":"ephemeral"}}]} ] }'
)


def test_nothing_changes_but_the_model() -> None:
    assert wire.body(messages_request(raw=RAW), "auto", None) == RAW
    assert wire.body(messages_request(raw=RAW), "claude", None) == RAW.replace(b'"auto"', b'"claude"')


def test_the_limit_and_the_plan_are_spliced_in() -> None:
    plan = ContextPlan(10, 5, drop=frozenset({0}), replace={1: "2"})
    sent = wire.body(messages_request(raw=RAW), "auto", plan, max_output_tokens=7)
    assert b'"max_tokens":7,' in sent
    assert b'[{"role":"assistant","content":"2"},{"role":"user","content":[{"type":"text","text":"th\\u0072ee"' in sent
    assert b'"temperature": 1.0e0, "invented": {"a": [1.50, null]}' in sent


@pytest.mark.parametrize(
    ("budget", "most", "expected"),
    [
        (2000, 4000, {"type": "enabled", "budget_tokens": 2000}),
        (2000, 1500, {"type": "enabled", "budget_tokens": 1499}),
        (2000, 1024, {"type": "disabled"}),
    ],
)
def test_a_lower_limit_leaves_room_beside_the_budget_for_thinking(
    budget: int, most: int, expected: dict[str, Any]
) -> None:
    request = messages_request(thinking={"type": "enabled", "budget_tokens": budget})
    assert orjson.loads(wire.body(request, "auto", None, max_output_tokens=most))["thinking"] == expected


def test_thoughts_that_nobody_signed_are_not_shown_to_a_backend_that_checks_signatures() -> None:
    ours = {"type": "thinking", "thinking": "hm", "signature": UNSIGNED}
    theirs = {"type": "thinking", "thinking": "so", "signature": "EqQB"}
    said = {"type": "text", "text": "yes"}
    request = messages_request(
        messages=[{"role": "assistant", "content": [ours, theirs, said]}, {"role": "user", "content": "?"}]
    )
    sent = orjson.loads(wire.body(request, "auto", None))["messages"]
    assert sent == [{"role": "assistant", "content": [theirs, said]}, {"role": "user", "content": "?"}]


def test_headers_carry_version_and_betas_and_no_key() -> None:
    given = {
        b"anthropic-version": b"2024-01-01", b"anthropic-beta": b"a-1,b-2", b"x-api-key": b"tg-mine",
        b"authorization": b"Bearer tg-mine", b"cookie": b"c", b"traceparent": b"00-1",
    }  # fmt: skip
    sent = dict([*wire.headers(messages_request(headers=given)), *wire.forwarded(messages_request(headers=given))])
    assert sent == {
        b"content-type": b"application/json", b"accept": b"application/json",
        b"anthropic-version": b"2024-01-01", b"anthropic-beta": b"a-1,b-2", b"traceparent": b"00-1",
    }  # fmt: skip
    unsaid = dict(
        [
            *wire.headers(messages_request(headers={b"anthropic-version": b"2023-06-01"}, stream=True)),
            *wire.forwarded(messages_request(headers={b"anthropic-version": b"2023-06-01"}, stream=True)),
        ]
    )
    assert (unsaid[b"anthropic-version"], unsaid[b"accept"]) == (b"2023-06-01", b"text/event-stream")


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("size", [1, 7, 100, 10**6])
def test_golden_streams_are_relayed_as_they_came(name: str, size: int) -> None:
    stream, (finish, said, usage) = golden(name), GOLDEN[name]
    reader = wire.reader(messages_request(stream=True))
    relayed = read(reader, [stream[at : at + size] for at in range(0, len(stream), size)])
    assert relayed + reader.ending == stream
    assert reader.ending == STOP
    assert (reader.ended, reader.finish, reader.usage) == (True, finish, usage)
    assert (reader.delivered_text(), reader.delivered_characters()) == (said, len(said))
    whole = reader.completion()
    assert whole is not None
    assert strict(Message, whole) == accumulated(stream)


BLOCKS = [
    text_block(0, "Hi", " \u00e9\u4e16", '"\\\n', "", "\U0001f600"),
    block(0, {"type": "thinking", "thinking": "", "signature": ""},
          {"type": "thinking_delta", "thinking": "so"}, {"type": "signature_delta", "signature": "Eq=="}),
    block(0, {"type": "redacted_thinking", "data": "xyz"}),
    block(0, {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
          {"type": "input_json_delta", "partial_json": ""},
          {"type": "input_json_delta", "partial_json": '{"a": "\\u00'},
          {"type": "input_json_delta", "partial_json": 'e9", "b": [1.50]}'}),
    block(0, {"type": "text", "text": "", "citations": []},
          {"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x", "document_index": 0,
           "document_title": None, "file_id": None, "start_char_index": 0, "end_char_index": 1}},
          {"type": "text_delta", "text": "cited"}),
    block(0, {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
          {"type": "input_json_delta", "partial_json": '{"query":"x"}'}),
]  # fmt: skip


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Any blocks in any order, written in any of the usual ways, with comments and pings in between."""
    blocks = draw(st.lists(st.sampled_from(BLOCKS), max_size=5))
    told = [one.replace(b'"index":0', b'"index":%d' % number) for number, one in enumerate(blocks)]
    events = [START, *told, END, STOP]
    stream = b"".join(one + draw(st.sampled_from([b"", b"", b": here\n\n", event({"type": "ping"})])) for one in events)
    if draw(st.booleans()):
        stream = stream.replace(b'"}}\n\n', b'"}      }\n\n')
    if draw(st.booleans()):
        stream = stream.replace(b'":"', b'": "').replace(b'","', b'", "')
    return stream.replace(b"\n", b"\r\n") if draw(st.booleans()) else stream


@steady
@given(streams(), st.lists(st.integers(0, 3000)))
def test_what_is_read_with_one_look_is_what_parsing_every_event_tells(stream: bytes, at: list[int]) -> None:
    reader = wire.reader(messages_request(stream=True))
    end = stream.index(b"event: message_stop")
    relayed = read(reader, cut(stream, at))
    assert relayed == stream[:end]
    assert stream[end:].startswith(reader.ending)
    whole, said = reader.completion(), [said for _, said in said_in(stream)]
    assert whole is not None
    assert Message.model_validate_json(whole) == accumulated(stream)
    assert reader.usage == messages_usage({"input_tokens": 3, "output_tokens": 2})
    slow = MessageAssembly()
    for each in said:
        slow.add(each, 1)
    assert (whole, reader.delivered_text()) == (slow.message(), slow.text())
    assert reader.delivered_characters() == slow.characters
    deltas = [each["delta"] for each in said if each["type"] == "content_block_delta"]
    texts = [delta.get("text") or delta.get("thinking") or delta.get("partial_json") for delta in deltas]
    calls = [each for each in said if each.get("content_block", {}).get("type") == "tool_use"]
    assert reader.chunks - reader.silent == len(calls) + sum(map(bool, texts))


def test_text_is_passed_on_at_once_and_counted() -> None:
    reader = wire.reader(messages_request(stream=True))
    begun = START + event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    assert reader.feed(begun) == begun
    assert (reader.chunks, reader.silent) == (1, 1)
    for number, text in enumerate(["a", "b", "c"]):
        one = event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
        half = len(one) // 2
        assert reader.feed(one[:half]) == b""
        assert reader.feed(one[half:]) == one
        assert reader.chunks == number + 2
    assert reader.delivered_text() == "abc"
    assert reader.usage is None


def test_a_beta_that_nobody_here_has_heard_of_goes_through() -> None:
    odd = block(0, {"type": "hologram", "depth": 1.50}, {"type": "hologram_delta", "voxels": [1]})
    extra = event({"type": "invented_tomorrow", "x": 1.0})
    last = END.replace(b'"usage":', b'"context_management":{"applied_edits":[]},"usage":')
    reader = wire.reader(messages_request(stream=True))
    relayed = read(reader, [START + odd + extra + last + STOP])
    assert relayed == START + odd + extra + last
    assert reader.completion() is None  # what is not understood is not kept
    assert reader.usage == Usage(input_tokens=3, output_tokens=2)


def test_later_counts_override_earlier_ones_and_fields_of_the_last_event_are_kept() -> None:
    last = {
        "type": "message_delta",
        "delta": {"stop_reason": "max_tokens", "stop_sequence": None, "container": {"id": "c", "expires_at": "x"}},
        "usage": {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 5, "server_tool_use": None},
        "context_management": {"applied_edits": []},
    }
    reader = wire.reader(messages_request(stream=True))
    read(reader, [START + event(last) + STOP])
    assert reader.usage == Usage(input_tokens=9, cached_tokens=4, output_tokens=5)
    assert reader.finish == "length"
    whole = orjson.loads(reader.completion() or b"")
    assert whole["container"]["id"] == "c"
    assert whole["context_management"] == {"applied_edits": []}
    assert whole["usage"] == {"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 4}


def test_an_error_event_breaks_the_stream_after_what_came_before_it() -> None:
    stream = golden("anthropic_overloaded.sse")
    reader = wire.reader(messages_request(stream=True))
    relayed = reader.feed(stream)
    assert stream.startswith(relayed)
    assert b"Hel" in relayed
    assert b"event: error" not in relayed
    with pytest.raises(StreamBroken, match="Overloaded"):
        reader.feed(b": more\n\n")
    with pytest.raises(StreamBroken, match="Overloaded"):
        reader.eof()
    assert (reader.delivered_text(), reader.ending, reader.completion()) == ("Hel", b"", None)


@pytest.mark.parametrize("stream", [b"", START, START + text_block(0, "a") + END, START + END + STOP[:30]])
def test_a_stream_without_its_last_event_is_broken(stream: bytes) -> None:
    reader = wire.reader(messages_request(stream=True))
    reader.feed(stream)
    with pytest.raises(StreamBroken, match="before the answer was complete"):
        reader.eof()
    assert (reader.completion(), reader.ending) == (None, b"")


def test_the_last_event_counts_without_its_blank_line_and_gets_one() -> None:
    reader = wire.reader(messages_request(stream=True))
    assert read(reader, [START + END, STOP.rstrip()]) == START + END
    assert (reader.ended, reader.ending) == (True, STOP)


@pytest.mark.parametrize("odd", [b"data: not json\n\n", b"data: []\n\n", b'data: {"choices":[]}\n\n', b"<html>"])
def test_what_is_no_event_of_anthropics_is_garbage(odd: bytes) -> None:
    reader = wire.reader(messages_request(stream=True))
    with pytest.raises(BackendGarbage):
        read(reader, [odd])


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_delta", "index": 0},
        {"type": "content_block_start"},
        {"type": "message_start", "message": 7},
        {"type": "message_delta", "delta": None, "usage": 3},
    ],
)
def test_odd_events_pass_but_no_message_is_made_of_them(odd: dict[str, Any]) -> None:
    reader = wire.reader(messages_request(stream=True))
    assert read(reader, [START + event(odd) + END + STOP]) == START + event(odd) + END
    assert reader.completion() is None


def test_a_long_answer_is_counted_but_not_kept() -> None:
    reader = wire.reader(messages_request(stream=True))
    opening, closing = text_block(0, "").split(b"event: content_block_delta")[0], b""
    reader.feed(START + opening)
    one = event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "abcd" * 100}})
    for _ in range(1000):
        assert reader.feed(one) == one
    read(reader, [closing + END + STOP])
    assert reader.delivered_characters() == 400_000
    assert reader.delivered_text().startswith("abcdabcd")
    assert len(reader.delivered_text()) < 100_000
    assert reader.completion() is None


# -- plain answers -----------------------------------------------------------------------------------------------------


MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "c", "invented": 1,
    "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Hi"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
    "stop_reason": "tool_use", "stop_sequence": None,
    "usage": {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 9},
}  # fmt: skip


def test_a_plain_answer_is_passed_on_as_it_came() -> None:
    body = orjson.dumps(MESSAGE, option=orjson.OPT_INDENT_2)
    plain = wire.plain(messages_request(), body)
    assert plain.body is body
    assert (plain.usage, plain.finish) == (Usage(input_tokens=3, cached_tokens=2, output_tokens=9), "tool_calls")
    assert plain.choices[0]["message"]["content"] == "Hi"
    assert plain.text == 'hm\nHi\nf\n{"a":1}'


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"type":"message"}', b'{"type":"message","content":[1]}'])
def test_what_is_no_message_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        wire.plain(messages_request(), body)


def test_a_refusal_keeps_the_backends_words() -> None:
    body = b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 5"}}'
    refused = wire.refusal(400, body, "claude")
    assert refused.message == "prompt is too long: 9 tokens > 5"
    assert refused.code == ContextTooLong.code


def test_a_block_without_a_type_is_read_for_its_text() -> None:
    stream = START + block(0, {"name": "n", "text": "Hi"}, {"type": "text_delta", "text": " there"}) + END + STOP
    reader = wire.reader(messages_request(stream=True))
    read(reader, [stream])
    assert reader.delivered_text() == "Hi there"


def test_messages_of_the_user_around_a_message_that_only_thought_become_one() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    given = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [thought]},
        {"role": "user", "content": "Go on."},
        {"role": "user", "content": "Now."},
    ]
    request = messages_request(messages=given)
    plan = ContextPlan(1, 1, no_thinking=frozenset({3}))
    sent = orjson.loads(wire.body(request, "m", plan))["messages"]
    joined = {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]}
    assert sent == [*given[:2], joined, given[5]]
