"""Chunks that are read without being parsed are those that parsing gives."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.openai_chat.chunks import ChatChunks
from gateway.dialects.streams.sse import payload
from gateway.errors import BackendGarbage
from tests.dialects.responses_samples import responses_request, wire
from tests.dialects.samples import DONE, STOP, USAGE_ONLY, chunk, read, steady, text

TEXT = st.text(alphabet=st.sampled_from('ab"\\\n/ñ🌈,:{}[]') | st.characters(exclude_categories=["Cs"]), max_size=8)
EVENT = st.one_of(
    st.builds(text, TEXT),
    st.builds(lambda said: chunk({"reasoning_content": said}), TEXT),
    st.builds(lambda said, field: chunk({"content": said}, **{field: said}), TEXT, st.sampled_from(["id", "obf"])),
    st.builds(lambda said: b"data: " + payload(text(said)).replace(b":", b": ") + b"\r\n\r\n", st.sampled_from("abc")),
    st.sampled_from([STOP, USAGE_ONLY, DONE, b": alive\n\n", chunk({"tool_calls": [{"index": 0}]})]),
)


def slowly(event: bytes) -> Any:
    data = payload(event)
    parsed = orjson.loads(data) if data and data != b"[DONE]" else {}
    return parsed if parsed.get("choices") else None


@steady
@given(st.lists(EVENT, max_size=20))
def test_every_chunk_is_what_parsing_gives(events: list[bytes]) -> None:
    chunks = ChatChunks()
    for event in events:
        assert chunks.read(event) == slowly(event)


def test_more_of_the_same_text_is_not_parsed_again() -> None:
    chunks = ChatChunks()
    assert chunks.again(text("a")) is None
    first = chunks.read(text("b"))
    assert first is not None
    again = chunks.again(text('say "c"\n'))
    assert again is first
    assert again["choices"][0]["delta"]["content"] == 'say "c"\n'


@pytest.mark.parametrize(
    "other",
    [b"", DONE, STOP, text("c") + text("d"), text("c")[:-1], text("c").replace(b'"c"', b'"\\ud800"'),
     text("c").replace(b'"c"', b'"'), text("c").replace(b'"c"', b"3"), chunk({"content": "c"}, id="c2")],
)  # fmt: skip
def test_anything_else_is(other: bytes) -> None:
    chunks = ChatChunks()
    chunks.read(text("b"))
    assert chunks.again(other) is None
    assert chunks.again(text("e")) is not None


def test_streams_in_which_every_event_differs_are_soon_left_alone() -> None:
    chunks = ChatChunks()
    for number in range(9):
        chunks.read(chunk({"content": "a"}, obfuscation=str(number)))
    assert chunks.again(chunk({"content": "b"}, obfuscation="8")) is None


@steady
@given(st.lists(st.tuples(TEXT, st.sampled_from(["content", "reasoning", "refusal"])), max_size=20), st.booleans())
def test_a_stream_is_told_as_if_every_event_were_parsed(said: list[tuple[str, str]], bursts: bool) -> None:
    """`obfuscation` is what makes a server's events differ; it is told to nobody."""
    same = [*[chunk({field: words}) for words, field in said], STOP, DONE]
    each = [chunk({field: words}, obfuscation=str(number)) for number, (words, field) in enumerate(said)]
    assert whole([b"".join(same)] if bursts else same) == whole([*each, STOP, DONE])


def whole(sent: list[bytes]) -> tuple[bytes, bytes | None]:
    reader = wire.reader(responses_request(stream=True))
    return read(reader, sent) + reader.ending, reader.completion()


@pytest.mark.parametrize("garbage", [b"data: {\n\n", b"data: 3\n\n", b'data: {"choices":[3]}\n\n'])
def test_an_event_that_is_no_chunk_breaks_the_stream_after_what_came_before_it(garbage: bytes) -> None:
    reader = wire.reader(responses_request(stream=True))
    told = reader.feed(text("Hello") + garbage + text("more"))
    assert b'"delta":"Hello"' in told
    assert b"more" not in told
    with pytest.raises(BackendGarbage):
        reader.feed(text("more"))
    with pytest.raises(BackendGarbage):
        reader.eof()
