"""Answers that flow and are not understood."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.passthrough.stream import Events, Opaque
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, StreamBroken
from tests.dialects.samples import DONE, cut, event, read, steady

USAGE = {"type": "tokens", "input_tokens": 5, "output_tokens": 2, "total_tokens": 7}


def delta(text: str) -> bytes:
    return event({"type": "transcript.text.delta", "delta": text})


LAST = event({"type": "transcript.text.done", "text": "ab", "usage": USAGE})
PICTURES = (
    b"event: image_generation.partial_image\n" + event({"type": "image_generation.partial_image", "b64_json": "A" * 99})
) + (b"event: image_generation.completed\n" + event({"type": "image_generation.completed", "usage": USAGE}))


@steady
@given(st.sampled_from([delta("a") + LAST, delta("a") + LAST + DONE, PICTURES, LAST]), st.lists(st.integers(0, 400)))
def test_events_go_through_and_the_last_is_kept_for_the_end(stream: bytes, at: list[int]) -> None:
    reader = Events()
    relayed = read(reader, cut(stream, at))
    assert relayed + reader.ending == stream
    assert reader.ending
    assert (reader.finish, reader.usage) == ("stop", Usage(5, output_tokens=2))


def test_one_that_only_looked_like_the_last_is_handed_on_with_the_next() -> None:
    reader = Events()
    assert reader.feed(delta("a")) == delta("a")
    assert reader.feed(LAST) == b""
    assert reader.feed(delta("b")) == LAST + delta("b")
    reader.eof()
    assert (reader.ending, reader.chunks, reader.completion(), reader.delivered_text()) == (b"", 3, None, "")


@pytest.mark.parametrize("error", [event({"error": {"message": "boom"}}), b"event: error\ndata: boom\n\n"])
def test_an_error_event_is_no_end(error: bytes) -> None:
    reader = Events()
    assert reader.feed(delta("a") + error) == delta("a")
    with pytest.raises(StreamBroken, match="boom"):
        reader.eof()
    assert reader.ending == b""


@pytest.mark.parametrize("word", ["an error of mine", "error"])
def test_a_text_may_speak_of_errors(word: str) -> None:
    reader = Events()
    assert reader.feed(delta(word)) == delta(word)


def test_a_stream_cut_inside_an_event_is_broken() -> None:
    reader = Events()
    reader.feed(delta("a") + LAST[:20])
    with pytest.raises(StreamBroken):
        reader.eof()


@pytest.mark.parametrize("reader", [Events(), Opaque()])
def test_nothing_is_no_answer(reader: Any) -> None:
    with pytest.raises(BackendGarbage):
        reader.eof()


def test_sound_goes_through_as_it_comes_and_counts_no_tokens() -> None:
    reader = Opaque()
    assert [reader.feed(piece) for piece in (b"\xff\xfb", b"data: x\n\n")] == [b"\xff\xfb", b"data: x\n\n"]
    reader.eof()
    assert (reader.chunks - reader.silent, reader.ended, reader.ending, reader.finish) == (0, False, b"", "stop")
    assert (reader.usage, reader.confidence, reader.delivered_characters()) == (None, None, 0)


def test_large_events_that_say_nothing_of_interest_are_not_read() -> None:
    sound = event({"type": "speech.audio.delta", "audio": "QUJD" * 50_000})
    reader = Events()
    assert reader.feed(sound * 3) == sound * 3
    assert reader.chunks == 3
    assert reader.feed(b"data: " + orjson.dumps({"type": "speech.audio.done", "usage": USAGE}) + b"\n\n") == b""
    assert reader.usage == Usage(5, output_tokens=2)
