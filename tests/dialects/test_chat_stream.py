"""Relaying chat streams."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.streams.sse import events
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, StreamBroken
from tests.dialects.samples import (
    DONE,
    STOP,
    USAGE,
    USAGE_ONLY,
    chunk,
    cut,
    event,
    events_of,
    golden,
    read,
    read_until_broken,
    steady,
    streaming,
    text,
)

wire = ChatToChat()
WHOLE = text("a") + text("b") + STOP + USAGE_ONLY + DONE
READ = Usage(input_tokens=5, output_tokens=2)

GOLDEN: dict[str, tuple[str, str, Usage]] = {
    "openai_chat.sse": (
        "stop",
        'Hola, "señor"\n😀 error [DONE]',
        Usage(input_tokens=24, cached_tokens=1000, output_tokens=10, reasoning_tokens=20),
    ),
    "openai_tools.sse": (
        "tool_calls",
        'weather\n{"city":"Bilbao"}\ntime\n{}',
        Usage(input_tokens=80, output_tokens=33),
    ),
    "vllm_continuous.sse": ("stop", "one two", Usage(input_tokens=12, output_tokens=3)),
    "two_choices.sse": ("length", "ab\nxy", Usage(input_tokens=12, output_tokens=4)),
    "azure_chat.sse": ("stop", "Hi", Usage(input_tokens=12, output_tokens=2)),
    "deepseek_reasoning.sse": (
        "stop",
        "Let me see\n42",
        Usage(input_tokens=9, output_tokens=3, reasoning_tokens=4),
    ),
    "spaced_crlf.sse": ("length", "café con leche", Usage(input_tokens=12, output_tokens=5)),
    "llamacpp_chat.sse": ("length", "🌈" * 8, Usage(input_tokens=27, output_tokens=24)),
}


def without(stream: bytes, *, usage: bool) -> bytes:
    """What the client of `stream` should get before the ending."""
    kept = [one for one in events(stream) if b"[DONE]\n" not in one and b"[DONE]\r" not in one]
    if not usage:
        return b"".join(kept)
    return b"".join(one for one in kept if not is_only_usage(one)).replace(b',"usage":null', b"")


def is_only_usage(one: bytes) -> bool:
    return any(not said["choices"] and said.get("usage") for said in events_of(one))


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("wants_usage", [True, False])
@pytest.mark.parametrize("size", [1, 7, 100, 10**6])
def test_golden_streams_are_relayed_as_they_came_without_what_only_we_asked_for(
    name: str, wants_usage: bool, size: int
) -> None:
    stream = golden(name)
    finish, said, usage = GOLDEN[name]
    reader = wire.reader(streaming(wants_usage=wants_usage))
    relayed = read(reader, [stream[i : i + size] for i in range(0, len(stream), size)])
    assert relayed == without(stream, usage=not wants_usage)
    assert reader.ending.strip() == b"data: [DONE]"
    assert (reader.ended, reader.finish, reader.usage) == (True, finish, usage)
    assert reader.delivered_text() == said


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_streams_make_a_plain_body_that_the_sdk_reads(name: str) -> None:
    finish, _, usage = GOLDEN[name]
    reader = wire.reader(streaming())
    read(reader, [golden(name)])
    completion = reader.completion()
    assert completion is not None
    ChatCompletion.model_validate_json(completion)
    plain = wire.plain(streaming(), completion)
    assert (plain.finish, plain.usage, plain.text) == (finish, usage, reader.delivered_text())
    for said in events_of(golden(name)):
        if said["object"]:
            ChatCompletionChunk.model_validate(said)


@steady
@given(
    st.sampled_from([*GOLDEN, "vllm_error.sse", "llamacpp_logprobs.sse"]), st.lists(st.integers(0, 5000)), st.booleans()
)
def test_any_split_of_the_bytes_gives_the_same(name: str, at: list[int], wants_usage: bool) -> None:
    stream = golden(name)
    assert outcome(cut(stream, at), wants_usage) == outcome([stream], wants_usage)


def outcome(pieces: list[bytes], wants_usage: bool) -> tuple[Any, ...]:
    reader = wire.reader(streaming(wants_usage=wants_usage))
    relayed, failure = read_until_broken(reader, pieces)
    return (
        *(relayed, failure, reader.ending, reader.ended, reader.finish, reader.usage, reader.chunks),
        *(reader.completion(), reader.delivered_text()),
    )


@steady
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=30),
    st.sampled_from([0, orjson.OPT_APPEND_NEWLINE]),
    st.lists(st.integers(0, 9000)),
)
def test_whatever_the_text_says_it_arrives_and_is_read_back(texts: list[str], style: int, at: list[int]) -> None:
    first = chunk({"role": "assistant", "content": ""})
    stream = first + b"".join(map(text, texts)) + STOP + USAGE_ONLY + DONE
    if style:
        stream = stream.replace(b"\n\n", b"\r\n\r\n")
    reader = wire.reader(streaming())
    assert read(reader, cut(stream, at)) == without(stream, usage=True)
    assert (reader.finish, reader.usage, reader.delivered_text()) == ("stop", READ, "".join(texts))
    completion = reader.completion()
    assert completion is not None
    assert orjson.loads(completion)["choices"][0]["message"]["content"] == "".join(texts)


def test_a_whole_event_is_never_held_back() -> None:
    reader = wire.reader(streaming())
    for one in (b": waiting\n\n", text("a"), text("b") + text("c"), chunk({"content": "error"}), STOP):
        assert reader.feed(one) == one
    assert reader.feed(text("d") + b'data: {"id"') == text("d")


def test_chunks_are_counted() -> None:
    reader = wire.reader(streaming())
    reader.feed(text("a") + b": ping\n\n")
    reader.feed(text("b"))
    assert reader.chunks == 2


def test_the_terminating_event_is_withheld_and_nothing_follows_it() -> None:
    reader = wire.reader(streaming())
    assert reader.feed(text("a") + STOP + DONE + b": bye\n\n") == text("a") + STOP
    assert (reader.ended, reader.ending) == (True, DONE)
    assert reader.feed(text("late")) == b""
    reader.eof()


def test_without_done_a_finished_answer_is_whole_and_no_done_is_invented() -> None:
    reader = wire.reader(streaming())
    assert read(reader, [text("a"), STOP]) == text("a") + STOP
    assert (reader.ended, reader.ending, reader.finish) == (False, b"", "stop")
    assert reader.completion() is not None


@pytest.mark.parametrize("last", [b"data: [DONE]\n", b"data: [DONE]", b"data:[DONE]\r\n"])
def test_done_counts_without_its_blank_line_too(last: bytes) -> None:
    reader = wire.reader(streaming())
    assert read(reader, [text("a"), STOP, last]) == text("a") + STOP
    assert (reader.ended, reader.ending) == (True, last)


def test_a_last_event_without_its_blank_line_is_relayed_at_the_end() -> None:
    reader = wire.reader(streaming())
    assert read(reader, [text("a"), STOP[:-2]]) == text("a")
    assert (reader.ending, reader.finish) == (STOP[:-2], "stop")


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        text("a"),
        text("a") + STOP[:40],
        text("a") + b": ping\n\n",
        chunk({"content": "a"}, index=1) + STOP,
        text("a") + USAGE_ONLY,
    ],
)
def test_a_stream_that_ends_before_the_answer_is_broken(stream: bytes) -> None:
    reader = wire.reader(streaming())
    reader.feed(stream)
    with pytest.raises(StreamBroken, match="before the answer was complete"):
        reader.eof()
    assert reader.completion() is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (event({"error": {"message": "CUDA out of memory", "code": 500}}), "CUDA out of memory"),
        (event({"error": "busy"}), "busy"),
        (event({"object": "error", "message": "killed"}), "killed"),
        (event({"detail": "The model was unloaded."}), "unloaded"),
        (b'event: error\ndata: {"message":"odd"}\n\n', '"message":"odd"'),
        (b'error: {"code":500,"message":"slot"}\n\n', "slot"),
        (chunk({"content": ""}, "error", error={"code": 502, "message": "Provider disconnected"}), "disconnected"),
    ],
)
def test_an_error_event_breaks_the_stream_after_what_came_before_it(error: bytes, words: str) -> None:
    reader = wire.reader(streaming())
    assert reader.feed(text("a") + error + DONE) == text("a")
    assert not reader.ended
    with pytest.raises(StreamBroken, match=words):
        reader.eof()
    with pytest.raises(StreamBroken, match=words):
        reader.feed(text("b"))
    assert reader.delivered_text() == "a"
    assert reader.completion() is None


def test_an_error_that_comes_first_is_raised_at_once() -> None:
    with pytest.raises(StreamBroken, match="no slot"):
        wire.reader(streaming()).feed(event({"error": {"message": "no slot"}}))


def test_a_stream_of_nothing_but_its_end_is_garbage() -> None:
    with pytest.raises(BackendGarbage, match="without an answer"):
        wire.reader(streaming()).feed(DONE)


@pytest.mark.parametrize("body", [b"<html>", b'{"id":"c","choices":[]}', b"Internal Server Error"])
def test_what_is_no_stream_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        wire.reader(streaming()).feed(body)


@pytest.mark.parametrize(
    ("usage", "read_as"),
    [
        ({"prompt_tokens": -1, "completion_tokens": 5}, Usage(output_tokens=5, doubt="input_tokens")),
        ({"prompt_tokens": 10**15, "completion_tokens": 5}, Usage(output_tokens=5, doubt="input_tokens")),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage()),
        ("many", None),
        (USAGE, READ),
    ],
)
def test_garbage_in_a_usage_is_doubted_and_not_stored(usage: Any, read_as: Usage | None) -> None:
    reader = wire.reader(streaming())
    read(reader, [text("a"), STOP, chunk(None, usage=usage), DONE])
    assert reader.usage == read_as
    completion = reader.completion()
    assert completion is not None
    assert ("usage" in orjson.loads(completion)) is (read_as is READ)


def test_believable_usage_is_not_forgotten_for_garbage_that_follows() -> None:
    reader = wire.reader(streaming())
    read(reader, [text("a"), STOP, chunk(None, usage=USAGE), chunk(None, usage={"prompt_tokens": -1}), DONE])
    assert reader.usage == READ


def test_usage_in_the_last_content_chunk_is_read_and_the_chunk_relayed() -> None:
    last = chunk({}, "stop", usage=USAGE)
    reader = wire.reader(streaming())
    assert read(reader, [text("a") + last + DONE]) == text("a") + last
    assert reader.usage == READ


def test_words_written_in_an_unusual_way_are_found_at_the_end() -> None:
    odd = (
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason" : "length"}],'
        b'"usage" : {"prompt_tokens":5,"completion_tokens":2}}\n\n'
    )
    reader = wire.reader(streaming())
    read(reader, [text("a"), odd, DONE])
    assert (reader.finish, reader.usage) == ("length", READ)


def test_log_probabilities_give_confidence_only_when_asked_for() -> None:
    stream = golden("llamacpp_logprobs.sse")
    asked, unasked = wire.reader(streaming(logprobs=True)), wire.reader(streaming())
    read(asked, [stream])
    read(unasked, [stream])
    assert asked.confidence == pytest.approx(0.779, abs=0.001)
    assert unasked.confidence is None
    completion = asked.completion()
    assert completion is not None
    entries = orjson.loads(completion)["choices"][0]["logprobs"]["content"]
    streamed = [
        entry
        for said in events_of(stream)
        for one in said["choices"]
        for entry in (one.get("logprobs") or {}).get("content", [])
    ]
    assert entries == streamed


def test_a_line_of_300_kb_passes() -> None:
    large = text("x" * 300_000)
    reader = wire.reader(streaming())
    assert read(reader, cut(large + STOP + DONE, list(range(0, 300_000, 16_384)))) == large + STOP
    assert reader.delivered_characters() == 300_000


def test_an_answer_too_large_to_keep_is_relayed_and_counted_but_not_kept() -> None:
    piece = text("word " * 2000)
    reader = wire.reader(streaming())
    for _ in range(220):
        assert reader.feed(piece) == piece
    read(reader, [STOP + DONE])
    assert reader.delivered_characters() == 220 * 10_000
    assert reader.delivered_text() == ("word " * 440_000)[:65536]
    assert reader.completion() is None


@pytest.mark.parametrize("odd", [b"not json", b'{"choices":[{"delta":{"content":"b', b"{not json}", b'["a"]', b"7"])
@pytest.mark.parametrize("apart", [False, True])
def test_an_unreadable_event_breaks_the_stream_after_what_came_before_it(odd: bytes, apart: bool) -> None:
    reader = wire.reader(streaming())
    pieces = [text("a"), text("b"), b"data: %b\n\n" % odd, text("c"), STOP + DONE]
    relayed: list[bytes] = []
    with pytest.raises(BackendGarbage, match="not one of a chat stream"):
        relayed.extend(map(reader.feed, pieces if apart else [b"".join(pieces), DONE]))
    assert b"".join(relayed) == text("a") + text("b")
    assert reader.completion() is None
    assert reader.delivered_text() == "ab"


@pytest.mark.parametrize(
    ("last", "silent"),
    [(chunk({}, "stop"), 1), (chunk({"content": ""}, "length"), 1), (chunk({"content": "c"}, "stop"), 0)],
)
def test_a_last_chunk_counts_when_it_carries_content(last: bytes, silent: int) -> None:
    """vLLM puts the reason on the last token, OpenAI behind it."""
    reader = wire.reader(streaming())
    for piece in (text("a"), text("b"), last):
        reader.feed(piece)
    assert (reader.chunks, reader.silent) == (3, silent)


def test_a_null_usage_that_only_we_asked_for_is_taken_out() -> None:
    said = b'data: {"choices":[{"index":0,"delta":{"content":"a,\\"usage\\":null"}}],"usage":null}\n\n'
    spaced = b'data: {"choices": [{"index": 0, "delta": {"content": "b"}}], "usage": null}\n\n'
    for wants_usage in (False, True):
        reader = wire.reader(streaming(wants_usage=wants_usage))
        relayed = reader.feed(said) + reader.feed(spaced) + reader.feed(said)
        assert relayed.count(b"usage") == (2 if not wants_usage else 5)
        assert relayed.count(b'\\"usage\\":null') == 2
