"""Event framing."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.streams import sse
from gateway.errors import BackendGarbage
from tests.dialects.samples import cut, steady

STREAMS = st.lists(
    st.sampled_from(
        [b"data: x", b"data: \xf0\x9f\x8c\x88", b": ping", b"event: a", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n"]
    )
).map(lambda parts: b"data: 1\n\n" + b"".join(parts))


def frame(pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    framer = sse.Framer()
    whole = [framer.feed(piece) for piece in pieces]
    return whole, framer.rest()


@steady
@given(STREAMS, st.lists(st.integers(0, 60)))
def test_however_the_bytes_are_cut_none_is_lost_and_only_whole_events_come_out(stream: bytes, at: list[int]) -> None:
    blocks, rest = frame(cut(stream, at))
    assert b"".join(blocks) + rest == stream
    assert all(sse.boundary(block) == len(block) or block.endswith(b"\r") for block in blocks if block)
    for block in blocks:
        assert b"".join(sse.events(block)) == block


@steady
@given(STREAMS, st.sampled_from([(b"x",), (b"ping", b"a"), (b"absent",)]))
def test_parts_are_the_events_in_order_and_an_event_with_a_mark_is_a_part_of_its_own(
    stream: bytes, marks: tuple[bytes, ...]
) -> None:
    block = stream[: sse.boundary(stream)]
    found = list(sse.parts(block, marks))
    assert b"".join(part for part, _ in found) == block
    for part, marked in found:
        assert marked or not sse.has_any(part, marks)
        if sse.has_any(part, marks):
            assert len([event for event in sse.events(part) if event.strip()]) == 1
    alone = [part.strip() for part, marked in found if marked]
    assert alone == [event.strip() for event in sse.events(block) if sse.has_any(event, marks)]


def test_events_without_a_mark_are_one_part() -> None:
    plain, marked = b'data: {"a":1}\n\n', b'data: {"mark":1}\n\n'
    block = plain * 3 + marked * 2 + plain * 2 + marked
    one = marked, True
    assert list(sse.parts(block, (b"mark", b"absent"))) == [(plain * 3, False), one, one, (plain * 2, False), one]
    block = block.replace(b"\n", b"\r\n")
    assert list(sse.parts(block, (b"mark",))) == [(event, b"mark" in event) for event in sse.events(block)]


def test_whole_events_are_handed_out_at_once_and_the_beginning_of_the_next_is_held() -> None:
    assert frame([b"data: 1\n\nda", b"ta: 2\n", b"\ndata: 3"]) == ([b"data: 1\n\n", b"", b"data: 2\n\n"], b"data: 3")


def test_a_large_line_passes_in_one_piece() -> None:
    line = b'data: {"x":"' + b"y" * 300_000 + b'"}\n\n'
    pieces = [line[i : i + 4096] for i in range(0, len(line), 4096)]
    blocks, rest = frame(pieces)
    assert b"".join(blocks) == line
    assert blocks[-1] == line
    assert rest == b""


def test_an_event_without_end_is_refused() -> None:
    framer = sse.Framer()
    for _ in range(sse.MAX_EVENT_BYTES // 65536):
        framer.feed(b"data: ".ljust(65536, b"x"))
    with pytest.raises(BackendGarbage, match="more than"):
        framer.feed(b"x")


def test_a_carriage_return_at_the_end_waits_for_its_line_feed() -> None:
    framer = sse.Framer()
    assert framer.feed(b"data: 1\r\n\r") == b""
    assert framer.feed(b"\ndata: 2\r\rdata: 3") == b"data: 1\r\n\r\ndata: 2\r\r"


@pytest.mark.parametrize(
    ("event", "name", "data"),
    [
        (b'data: {"a":1}\n\n', b"", b'{"a":1}'),
        (b'data:{"a":1}\n\n', b"", b'{"a":1}'),
        (b'id: 7\nevent: message\ndata: {"a":\ndata: 1}\n\n', b"message", b'{"a":\n1}'),
        (b": comment\n\n", b"", b""),
        (b"\xef\xbb\xbfdata: 1\r\n\r\n", b"", b"1"),
        (b'error: {"code":500}\n\n', b"error", b'{"code":500}'),
        (b"data\n\n", b"", b""),
    ],
)
def test_name_and_data_are_read_from_an_event(event: bytes, name: bytes, data: bytes) -> None:
    assert sse.fields(event) == (name, data)
    assert sse.payload(event) == data


@pytest.mark.parametrize(
    "start", [b"data: 1\n\n", b": hello\n\n", b"\r\n\r\nid: 3\n\n", b"\xef\xbb\xbfdata: 1\n\n", b"event: a\n\n"]
)
def test_an_event_stream_is_recognised_byte_by_byte(start: bytes) -> None:
    blocks, _ = frame([start[i : i + 1] for i in range(len(start))])
    assert b"".join(blocks) == start


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html><h1>502 Bad Gateway</h1></html>", "event stream."),
        (b'{"error":{"message":"out of memory"}}', "event stream: out of memory"),
        (b'{"choices":[]}', "event stream."),
        (b"upstream connect error", "event stream."),
    ],
)
def test_anything_else_is_refused_at_its_first_bytes_with_the_backends_words(body: bytes, words: str) -> None:
    with pytest.raises(BackendGarbage, match="did not answer with an event stream") as caught:
        sse.Framer().feed(body)
    assert caught.value.message.endswith(words)


@pytest.mark.parametrize("first", [b"", b"\xef\xbb\xbf"])
def test_line_breaks_before_the_first_event_are_not_kept(first: bytes) -> None:
    """A backend may send them as a sign of life, before it has anything to say."""
    framer = sse.Framer()
    framer.feed(first)
    tracemalloc.start()
    try:
        for _ in range(100):
            framer.feed(b"\n" * 10_000)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 100_000
    assert framer.feed(b"data: 1\n\n") == b"data: 1\n\n"


def test_the_objects_of_a_block_are_parsed_together() -> None:
    assert sse.objects(b'data: {"a":"\\n"}\n\ndata: {"b":[1,{}]}\n\n') == [{"a": "\n"}, {"b": [1, {}]}]
    assert sse.objects(b'data: {"a":1}\r\n\r\ndata: {}\r\n\r\n') == [{"a": 1}, {}]


@pytest.mark.parametrize(
    "block",
    [b"", b": ping\n\n", b'data: {"a":1}\n\n: ping\n\n', b"data: [1]\n\n", b"data: {}\n\ndata: 1\n\n", b"data: {\n\n",
     b'event: a\ndata: {}\n\n', b"data: {},{}\n\n", b'data: {"a":[1\n\ndata: 2]}\n\n', b"data: {}\n\ndata: [DONE]\n\n"],
)  # fmt: skip
def test_a_block_with_anything_else_is_left_to_be_read_event_by_event(block: bytes) -> None:
    assert sse.objects(block) is None


LINES = st.lists(
    st.sampled_from(
        (
            *(b"event: a", b"event:  b ", b"event:", b"event: data: ", b": c", b"id: 1", b"x", b"error: e"),
            *(b'data: {"a":1}', b"data: x ", b"data:", b"data: data: "),
        )
    ),
    max_size=4,
)


@steady
@given(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.sampled_from([0, 1, 2]))
def test_name_and_data_do_not_depend_on_how_usual_the_event_is(lines: list[bytes], end: bytes, ends: int) -> None:
    usual = end.join(lines) + end * ends
    assert sse.fields(usual) == sse.fields(b": c\n" + usual)
