"""Responses streams as chat streams."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.translate.chat_to_responses.stream import ResponsesStream
from gateway.dialects.translate.chat_to_responses.translator import ChatToResponses
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, StreamBroken
from tests.dialects.samples import DONE, cut, events_of, golden, read, read_until_broken, steady, streaming
from tests.dialects.samples import event as unnamed
from tests.dialects.samples import named as event
from tests.dialects.sdk import accumulate
from tests.support.requests import chat_request

wire = ChatToResponses()
CALLS = [("call_Ab1", '{"city": "Bilbao" }'), ("call_Ab2", "{}")]
GOLDEN: dict[str, tuple[str, str, Usage]] = {
    "openai_responses.sse": (
        "stop",
        "**Weighing the question**\n\n**Answering**\n\nBriefly.\n"
        'Hola, "señor"\n😀 error [DONE] response.completed\\ "delta":"x"',
        Usage(input_tokens=24, cached_tokens=1000, output_tokens=10, reasoning_tokens=20),
    ),
    "openai_responses_tools.sse": (
        "tool_calls",
        'Let me look.\nweather\n{"city": "Bilbao" }\ntime\n{}',
        Usage(input_tokens=80, output_tokens=41),
    ),
    "openai_responses_incomplete.sse": ("length", "t0 t1", Usage(input_tokens=9, output_tokens=2)),
    "openai_responses_refusal.sse": ("stop", "I'm sorry.", Usage(input_tokens=9, output_tokens=3)),
    "vllm_responses.sse": (
        "stop",
        "Two plus two.\n4 — four",
        Usage(input_tokens=6, cached_tokens=64, output_tokens=7, reasoning_tokens=5),
    ),
}


def reader(*, wants_usage: bool = True, **fields: Any) -> ResponsesStream:
    return wire.reader(streaming(wants_usage=wants_usage, **fields))


def text(delta: str, **more: Any) -> bytes:
    return event({"type": "response.output_text.delta", "delta": delta, **more})


CREATED = event({"type": "response.created", "response": {"id": "r", "created_at": 7.5, "model": "m"}})
COMPLETED = event({"type": "response.completed", "response": {"status": "completed", "output": []}})


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_streams_become_chunks_that_the_sdk_reads(name: str) -> None:
    finish, said, usage = GOLDEN[name]
    stream = reader()
    relayed = read(stream, [golden(name)])
    assert (stream.ended, stream.ending, stream.finish, stream.usage) == (True, DONE, finish, usage)
    assert stream.delivered_text() == said
    for one in events_of(relayed):
        if not _custom(one):  # the SDK's chunks know functions only
            ChatCompletionChunk.model_validate(one)
    whole = stream.completion()
    assert whole is not None
    kept = ChatCompletion.model_validate_json(whole)
    seen = accumulate(b"".join(unnamed(one) for one in events_of(relayed) if not _custom(one)) + stream.ending)
    assert (seen.id, seen.model, seen.created) == (kept.id, kept.model, 1754999123)
    assert seen.choices[0].message.content == kept.choices[0].message.content
    assert seen.choices[0].message.refusal == kept.choices[0].message.refusal
    assert seen.choices[0].finish_reason == kept.choices[0].finish_reason == finish
    assert seen.usage == kept.usage
    calls = [(call.id, call.function.arguments) for call in seen.choices[0].message.tool_calls or ()]  # type: ignore[union-attr]
    assert calls == (CALLS if finish == "tool_calls" else [])


def _custom(chunk: dict[str, Any]) -> bool:
    return any("custom" in call for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ()))


@pytest.mark.parametrize("name", GOLDEN)
def test_a_stream_says_what_the_plain_answer_says(name: str) -> None:
    """The last event has the plain answer, so the two ways can be compared."""
    stream = reader()
    read(stream, [golden(name)])
    plain = wire.plain(chat_request(), orjson.dumps(events_of(golden(name))[-1]["response"]))
    whole = orjson.loads(stream.completion() or b"")
    ours, theirs = whole["choices"][0], orjson.loads(plain.body)["choices"][0]
    assert {**ours["message"], "content": ours["message"]["content"] or None} == {
        **theirs["message"],
        "content": theirs["message"]["content"],
    }
    assert ours["finish_reason"] == theirs["finish_reason"]
    assert (stream.usage, whole["usage"]) == (plain.usage, orjson.loads(plain.body)["usage"])


def test_a_custom_tool_is_called_as_one() -> None:
    stream = reader()
    chunks = [one for one in events_of(read(stream, [golden("openai_responses_tools.sse")])) if _custom(one)]
    calls = [chunk["choices"][0]["delta"]["tool_calls"][0] for chunk in chunks]
    assert calls[0] == {"index": 2, "id": "call_Ab3", "type": "custom", "custom": {"name": "shell", "input": ""}}
    assert "".join(call["custom"]["input"] for call in calls) == 'ls -l "a"'


@steady
@given(
    st.sampled_from([*GOLDEN, "openai_responses_failed.sse"]),
    st.lists(st.integers(0, 9000)),
    st.booleans(),
    st.booleans(),
)
def test_any_split_of_the_bytes_gives_the_same(name: str, at: list[int], wants_usage: bool, logprobs: bool) -> None:
    """With log-probabilities every event is parsed, without them hardly any: the chunks are the same."""
    stream = golden(name)
    assert outcome(cut(stream, at), wants_usage, logprobs) == outcome([stream], wants_usage, not logprobs)


def outcome(pieces: list[bytes], wants_usage: bool, logprobs: bool) -> tuple[Any, ...]:
    stream = reader(wants_usage=wants_usage, logprobs=logprobs)
    relayed, failure = read_until_broken(stream, pieces)
    told = (stream.chunks, stream.silent, stream.delivered_text())
    chunks = events_of(relayed)
    return chunks, failure, stream.usage, stream.finish, stream.completion(), *told


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(['"delta":"x"', "\\", '\\"'])


@steady
@given(st.lists(st.tuples(TEXT, st.booleans()), max_size=20))
def test_text_that_is_not_parsed_arrives_as_it_was(said: list[tuple[str, bool]]) -> None:
    events = [text(delta, **({"deep": {"delta": "no"}} if nested else {})) for delta, nested in said]
    fast, slow = reader(), reader(logprobs=True)
    relayed = [read(stream, [CREATED, *events, COMPLETED]) for stream in (fast, slow)]
    assert events_of(relayed[0]) == events_of(relayed[1])
    seen = accumulate(relayed[0] + fast.ending)
    assert seen.choices[0].message.content == "".join(delta for delta, _ in said)


def test_usage_is_sent_only_to_who_asked() -> None:
    asked, unasked = reader(), reader(wants_usage=False)
    with_usage, without = (read(one, [golden("openai_responses.sse")]) for one in (asked, unasked))
    assert with_usage.startswith(without)
    (last,) = events_of(with_usage.removeprefix(without))
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 1000, "cache_write_tokens": 0}
    assert unasked.usage == asked.usage


def test_what_it_made_is_what_a_chat_backend_would_have_streamed() -> None:
    stream = reader()
    relayed = read(stream, [golden("openai_responses_tools.sse")])
    as_chat = ChatToChat().reader(streaming(wants_usage=True))
    assert read(as_chat, [relayed + stream.ending]) == relayed
    assert (as_chat.completion(), as_chat.delivered_text()) == (stream.completion(), stream.delivered_text())
    assert (as_chat.chunks, as_chat.silent) == (stream.chunks, stream.silent)


def test_every_event_is_relayed_as_it_comes() -> None:
    stream = reader()
    assert events_of(stream.feed(CREATED))[0]["choices"][0]["delta"]["role"] == "assistant"
    (said,) = events_of(stream.feed(text("a")))
    assert (said["choices"][0]["delta"], said["created"]) == ({"content": "a"}, 7)
    assert stream.feed(b": ping\n\n" + event({"type": "response.in_progress"})) == b""
    assert stream.feed(event({"type": "response.invented_tomorrow", "delta": "x"})) == b""
    assert stream.chunks == 2


def test_servers_that_leave_out_what_they_can() -> None:
    """No beginning, no indexes, arguments only at the end, no output in the last event."""
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
    stream = reader()
    relayed = read(
        stream,
        [
            event({"type": "response.reasoning_summary_part.added"}),
            event({"type": "response.reasoning_summary_text.delta", "delta": "hm"}),
            text("a"),
            event({"type": "response.output_item.added", "output_index": 1, "item": {**item, "arguments": ""}}),
            event({"type": "response.output_item.done", "output_index": 1, "item": item}),
            event({"type": "response.completed", "response": {"usage": {"input_tokens": 3, "output_tokens": 2}}}),
        ],
    )
    deltas = [chunk["choices"][0]["delta"] for chunk in events_of(relayed) if chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "reasoning_content": "hm"}
    assert deltas[1] == {"content": "a"}
    assert deltas[3] == {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]}
    assert (stream.finish, stream.usage) == ("tool_calls", Usage(input_tokens=3, output_tokens=2))


def test_log_probabilities_are_for_who_asked() -> None:
    row = {"token": "a", "logprob": 0.0, "bytes": [97], "top_logprobs": []}
    asking, silent = reader(logprobs=True), reader()
    chunks = [events_of(one.feed(CREATED + text("a", logprobs=[row])))[-1] for one in (asking, silent)]
    assert [chunk["choices"][0]["logprobs"] for chunk in chunks] == [{"content": [row], "refusal": None}, None]
    assert (asking.confidence, silent.confidence) == (1.0, None)


def test_an_error_breaks_the_stream_after_what_came_before_it() -> None:
    stream = reader()
    assert b'"Hel"' in stream.feed(golden("openai_responses_failed.sse"))
    with pytest.raises(StreamBroken, match="out of breath"):
        stream.eof()
    assert stream.delivered_text() == "Hel"
    assert stream.completion() is None


def test_an_error_that_comes_first_is_raised_at_once() -> None:
    with pytest.raises(StreamBroken, match="broke"):
        reader().feed(event({"type": "error", "code": None, "message": "broke"}))


@pytest.mark.parametrize("stream", [b"", CREATED, CREATED + text("a"), CREATED + COMPLETED[:40], CREATED + DONE])
def test_a_stream_without_its_last_event_is_broken(stream: bytes) -> None:
    broken = reader()
    broken.feed(stream)
    with pytest.raises(StreamBroken, match="before the answer was complete"):
        broken.eof()
    assert broken.completion() is None


def test_the_last_event_counts_without_its_blank_line_too() -> None:
    stream = reader()
    relayed = read(stream, [CREATED + text("a"), COMPLETED.rstrip()])
    assert stream.ended
    assert stream.ending.endswith(DONE)
    assert accumulate(relayed + stream.ending).choices[0].message.content == "a"


@pytest.mark.parametrize(
    "odd",
    [
        b"data: not json\n\n",
        b"data: []\n\n",
        b'event: response.output_text.delta\ndata: {"delta":"\\x"}\n\n',
        b'data: {"type":"response.output_item.added","item":7}\n\n',
        b'data: {"type":"response.completed","response":7}\n\n',
    ],
)
def test_events_that_are_not_of_responses_are_garbage(odd: bytes) -> None:
    stream = reader()
    stream.feed(CREATED)
    with pytest.raises(BackendGarbage):
        stream.feed(odd)


@pytest.mark.parametrize("body", [b"<html>", b'{"output":[]}'])
def test_what_is_no_stream_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        reader().feed(body)


def test_a_count_that_cannot_be_is_doubted_and_not_shown() -> None:
    stream = reader()
    end = event({"type": "response.completed", "response": {"output": [], "usage": {"input_tokens": -3}}})
    relayed = read(stream, [CREATED + text("a") + end])
    assert stream.usage == Usage(doubt="input_tokens")
    assert b'"usage"' not in relayed
