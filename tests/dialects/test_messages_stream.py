"""Anthropic's streams as OpenAI's."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.translate.chat_to_messages.stream import MessagesStream
from gateway.dialects.translate.chat_to_messages.translator import ChatToMessages
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, StreamBroken
from tests.dialects.samples import DONE, cut, events_of, golden, read, read_until_broken, steady, streaming
from tests.dialects.samples import named as event
from tests.dialects.sdk import accumulate

wire = ChatToMessages(clock=lambda: 1_700_000_000.5)
GOLDEN: dict[str, tuple[str, str, Usage | None]] = {
    "anthropic_tools.sse": (
        "tool_calls",
        'The user asks.\nVoy a mirar el tiempo.\nweather\n{"city": "Bilbao"}\ntime\n{}',
        Usage(25, 1000, 100, 20, output_tokens=49, reasoning_tokens=40),
    ),
    "anthropic_padded.sse": (
        "tool_calls",
        'Two cities, so two calls — "weather" twice.\n\nMiro las dos ciudades: Bilbao y Donostia 🌧️.\n'
        'weather\n{"city": "Bilbao", "days": 1.50}\nweather\n{"city": "Donostia ☔", "n": 12345678901234567890123}\n'
        "now\n{}",
        Usage(472, 2048, output_tokens=126, reasoning_tokens=61),
    ),
    "llamacpp_messages.sse": ("stop", "I'm counting to five.", Usage(input_tokens=22, output_tokens=7)),
    "llamacpp_messages_headless.sse": ("length", "🌈" * 8, Usage(output_tokens=24)),  # No message_start: input unknown.
}


def reader(*, wants_usage: bool = True) -> MessagesStream:
    return wire.reader(streaming(wants_usage=wants_usage))


START = event({"type": "message_start", "message": {"id": "m", "model": "c", "usage": {"input_tokens": 3}}})
END = event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}})
STOP = event({"type": "message_stop"})


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_streams_become_chunks_that_the_sdk_reads(name: str) -> None:
    finish, said, usage = GOLDEN[name]
    stream = reader()
    relayed = read(stream, [golden(name)])
    assert (stream.ended, stream.ending, stream.finish, stream.usage) == (True, DONE, finish, usage)
    assert stream.delivered_text() == said
    for one in events_of(relayed):
        ChatCompletionChunk.model_validate(one)
    whole = stream.completion()
    assert whole is not None
    kept, seen = ChatCompletion.model_validate_json(whole), accumulate(relayed + stream.ending)
    assert (seen.id, seen.model, seen.created) == (kept.id, kept.model, 1_700_000_000)
    assert seen.choices[0].message.content == kept.choices[0].message.content
    assert seen.usage == kept.usage
    calls = [call.model_dump() for call in kept.choices[0].message.tool_calls or ()]
    assert [{**call.model_dump(), "function": None} for call in seen.choices[0].message.tool_calls or ()] == [
        {**call, "index": number, "function": None} for number, call in enumerate(calls)
    ]


@pytest.mark.parametrize("at", [[], list(range(0, 9000, 11))])
def test_a_stream_of_thoughts_and_parallel_calls_byte_for_byte(at: list[int]) -> None:
    stream = reader()
    relayed = read(stream, cut(golden("anthropic_padded.sse"), at))
    assert relayed + stream.ending == golden("anthropic_padded.as_chat.sse")


@steady
@given(st.sampled_from([*GOLDEN, "anthropic_overloaded.sse"]), st.lists(st.integers(0, 4000)), st.booleans())
def test_any_split_of_the_bytes_gives_the_same(name: str, at: list[int], wants_usage: bool) -> None:
    stream = golden(name)
    assert outcome(cut(stream, at), wants_usage) == outcome([stream], wants_usage)


def outcome(pieces: list[bytes], wants_usage: bool) -> tuple[Any, ...]:
    stream = reader(wants_usage=wants_usage)
    relayed, failure = read_until_broken(stream, pieces)
    return relayed, failure, stream.usage, stream.finish, stream.completion(), stream.delivered_text()


def test_usage_is_sent_only_to_who_asked() -> None:
    asked, unasked = reader(), reader(wants_usage=False)
    with_usage, without = (read(one, [golden("anthropic_tools.sse")]) for one in (asked, unasked))
    assert with_usage.startswith(without)
    (last,) = events_of(with_usage.removeprefix(without))
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 1000, "cache_write_tokens": 120}
    assert unasked.usage == asked.usage


def test_what_it_made_is_what_a_chat_backend_would_have_streamed() -> None:
    stream = reader()
    relayed = read(stream, [golden("anthropic_tools.sse")])
    chat = ChatToChat().reader(streaming(wants_usage=True))
    assert read(chat, [relayed + stream.ending]) == relayed
    assert (chat.completion(), chat.delivered_text()) == (stream.completion(), stream.delivered_text())


def test_every_event_is_relayed_as_it_comes() -> None:
    stream = reader()
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
    assert events_of(stream.feed(START))[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events_of(stream.feed(event(delta)))[0]["choices"][0]["delta"] == {"content": "a"}
    assert stream.feed(event({"type": "ping"})) == b""
    assert stream.feed(event({"type": "invented_tomorrow"})) == b""
    assert stream.chunks == 2


def test_an_error_event_breaks_the_stream_after_what_came_before_it() -> None:
    stream = reader()
    assert b'"Hel"' in stream.feed(golden("anthropic_overloaded.sse"))
    with pytest.raises(StreamBroken, match="Overloaded"):
        stream.eof()
    assert stream.delivered_text() == "Hel"
    assert stream.completion() is None


def test_an_error_that_comes_first_is_raised_at_once() -> None:
    with pytest.raises(StreamBroken, match="Overloaded"):
        reader().feed(event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}))


@pytest.mark.parametrize("stream", [b"", START, START + END, START + STOP[:30]])
def test_a_stream_without_its_last_event_is_broken(stream: bytes) -> None:
    broken = reader()
    broken.feed(stream)
    with pytest.raises(StreamBroken, match="before the answer was complete"):
        broken.eof()
    assert broken.completion() is None


def test_the_last_event_counts_without_its_blank_line_too() -> None:
    stream = reader()
    relayed = read(stream, [START + END, STOP.rstrip()])
    assert stream.ended
    assert stream.ending.endswith(DONE)
    assert events_of(relayed + stream.ending)[-1]["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize(
    "odd",
    [
        b"data: not json\n\n",
        b"data: []\n\n",
        b'data: {"choices":[]}\n\n',
        b'data: {"type":"content_block_start","index":0}\n\n',
        b'data: {"type":"message_start","message":7}\n\n',
    ],
)
def test_events_that_are_not_anthropics_are_garbage(odd: bytes) -> None:
    with pytest.raises(BackendGarbage):
        reader().feed(odd)


@pytest.mark.parametrize("body", [b"<html>", b'{"type":"message"}'])
def test_what_is_no_stream_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        reader().feed(body)


def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    told = [event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
    opening = event({"type": "content_block_start", "index": index, "content_block": begun})
    return b"".join([opening, *told, event({"type": "content_block_stop", "index": index})])


def thought(*words: str, signature: str = "") -> list[dict[str, Any]]:
    signed = [{"type": "signature_delta", "signature": signature}] if signature else []
    return [*({"type": "thinking_delta", "thinking": word} for word in words), *signed]


def deltas_of(stream: bytes) -> list[dict[str, Any]]:
    return [one["choices"][0]["delta"] for one in events_of(stream) if one["choices"]]


EMPTY_THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}


@pytest.mark.parametrize("pieces", [[], [500], list(range(0, 5000, 7))])
def test_thoughts_are_given_whole_once_they_are_signed(pieces: list[int]) -> None:
    content = (
        block(0, EMPTY_THOUGHT, *thought("Let", " me\n", ' "see"', " é", signature="c2lnbmVk")),
        block(1, {"type": "redacted_thinking", "data": "eHg="}),
        block(2, EMPTY_THOUGHT, *thought("unsigned")),
        block(3, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Yes"}),
        block(4, EMPTY_THOUGHT, *thought(signature="b21pdHRlZA==")),
    )
    stream = reader()
    relayed = read(stream, cut(START + b"".join(content) + END + STOP, pieces))
    thoughts = [
        {"type": "thinking", "thinking": 'Let me\n "see" é', "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "eHg=", "index": 1},
        {"type": "thinking", "thinking": "", "signature": "b21pdHRlZA==", "index": 2},
    ]
    told = [delta["thinking_blocks"] for delta in deltas_of(relayed) if "thinking_blocks" in delta]
    assert told == [[one] for one in thoughts]
    seen = accumulate(relayed + stream.ending).choices[0].message
    assert seen.content == "Yes"
    assert seen.model_extra == {
        "thinking_blocks": thoughts,
        "reasoning_content": 'Let me\n "see" éunsigned',
    }
    whole = orjson.loads(stream.completion() or b"")["choices"][0]["message"]
    assert whole["thinking_blocks"] == thoughts
    assert (stream.chunks - stream.silent, stream.delivered_characters()) == (6, len('Let me\n "see" éunsigned\nYes'))


def test_calls_may_say_all_of_their_input_at_once_and_are_quoted_as_they_were_written() -> None:
    opening = event({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t"}})
    written = b'{"n": 123456789012345678901234567890, "x": 1.50}'
    opening = opening.replace(b'"id":"t"', b'"id":"t","name":"f","input":' + written)
    stream = reader()
    relayed = read(stream, [START, opening, event({"type": "content_block_stop", "index": 0}), END, STOP])
    calls = accumulate(relayed + stream.ending).choices[0].message.tool_calls or []
    assert [call.function.arguments.encode() for call in calls] == [written]  # type: ignore[union-attr]


def test_the_work_of_server_tools_is_not_shown() -> None:
    piece = {"type": "input_json_delta", "partial_json": "{}"}
    citation = {"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x"}}
    content = (
        block(0, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, piece),
        block(1, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
        block(2, {"type": "text", "text": "", "citations": []}, {"type": "text_delta", "text": "Yes"}, citation),
    )
    stream = reader()
    assert deltas_of(read(stream, [START, *content, END, STOP]))[1:] == [{"content": "Yes"}, {}]


@pytest.mark.parametrize(
    ("said", "delta", "choice"),
    [
        (
            {"stop_reason": "stop_sequence", "stop_sequence": "END"},
            {},
            {"finish_reason": "stop", "stop_reason": "END"},
        ),
        (
            {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "No."}},
            {"refusal": "No."},
            {"finish_reason": "content_filter"},
        ),
        ({"stop_reason": "pause_turn"}, {}, {"finish_reason": "length"}),
    ],
)
def test_why_it_stopped(said: dict[str, Any], delta: dict[str, Any], choice: dict[str, Any]) -> None:
    stream = reader()
    end = event({"type": "message_delta", "delta": said, "usage": {"output_tokens": 2}})
    (last,) = events_of(read(stream, [START, end, STOP]))[1:-1]
    assert last["choices"] == [{"index": 0, "delta": delta, "logprobs": None, **choice}]
    assert (stream.completion() or b"").count(b'"stop_reason":"END"') == ("stop_reason" in choice)


def test_a_last_event_without_counts_leaves_the_usage_unknown() -> None:
    stream = reader()
    read(stream, [START, event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}), STOP])
    assert stream.usage is None


@pytest.mark.parametrize("odd", [b'"b\\q"', b'"b', b'"b\xff"'])
def test_a_broken_event_among_others_like_it_is_garbage(odd: bytes) -> None:
    delta = event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}})
    stream = reader()
    stream.feed(START + delta + delta)
    with pytest.raises(BackendGarbage):
        stream.feed(delta.replace(b'"b"', odd))


def test_a_count_that_cannot_be_is_doubted_and_not_shown() -> None:
    stream = reader()
    start = event({"type": "message_start", "message": {"id": "m", "model": "c", "usage": {"input_tokens": -3}}})
    relayed = read(stream, [start + END + STOP])
    assert stream.usage == Usage(output_tokens=2, doubt="input_tokens")
    assert b'"usage"' not in relayed
