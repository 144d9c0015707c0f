"""Event streams against botocore's decoder, in pieces of any size, broken and cut."""

from __future__ import annotations

import random
import struct
from zlib import crc32

import pytest
from botocore.eventstream import EventStreamBuffer

from gateway.backends.providers.bedrock.event_stream import Decoder, Messages
from gateway.errors import BackendGarbage
from tests.fakes.event_stream import frame


def generated(dice: random.Random) -> bytes:
    headers = {
        f"name-{number}": dice.choice(
            (True, False, 7, "text ünï", dice.randbytes(dice.randrange(300)), "", struct.pack(">q", 1))
        )
        for number in range(dice.randrange(6))
    }
    return frame(headers, dice.randbytes(dice.choice((0, 1, 50, 70_000))))


def pieces(dice: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(12)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("seed", range(40))
def test_messages_are_botocores(seed: int) -> None:
    dice = random.Random(seed)
    data = b"".join(generated(dice) for _ in range(dice.randrange(1, 8)))
    theirs = EventStreamBuffer()
    theirs.add_data(data)
    expected = [(set(event.headers), event.payload) for event in theirs]
    decoder, found = Decoder(), list[Messages]()
    for piece in pieces(dice, data):
        found += decoder.feed(piece)
    assert [(set(each.headers), payload) for each in found for payload in each.payloads] == expected
    assert not decoder.inside


def test_texts_and_bytes_of_headers_are_read() -> None:
    (message,) = Decoder().feed(frame({":event-type": "chunk", "flag": True, "b": b"\xff"}, b"x"))
    assert message == Messages({":event-type": b"chunk", "flag": b"", "b": b"\xff"}, [b"x"])
    assert message.header(":event-type") == "chunk"
    assert message.header("missing") == ""


def test_messages_with_equal_headers_are_returned_together() -> None:
    kinds = [("a", b"1"), ("a", b""), ("b", b"2"), ("a", b"3")]
    found = Decoder().feed(b"".join(frame({":event-type": kind}, payload) for kind, payload in kinds))
    assert [(each.header(":event-type"), each.payloads) for each in found] == [
        ("a", [b"1", b""]),
        ("b", [b"2"]),
        ("a", [b"3"]),
    ]


def test_half_a_message_is_waited_for() -> None:
    data = frame({":event-type": "chunk"}, b"hello")
    for end in range(1, len(data)):
        decoder = Decoder()
        assert decoder.feed(data[:end]) == []
        assert decoder.inside
        assert len(decoder.feed(data[end:])) == 1


@pytest.mark.parametrize("at", range(30))
def test_a_flipped_byte_is_noticed(at: int) -> None:
    data = bytearray(frame({":event-type": "chunk"}, b"hello"))
    data[at] ^= 0x41
    with pytest.raises(BackendGarbage):
        Decoder().feed(bytes(data))


@pytest.mark.parametrize(
    "headers", [b"\x09short", b"\x01a\x63", b"\x01a\x07\xff\xff", b"\x01a\x05\x00", b"\x01\xff\x00"]
)
def test_headers_that_cannot_be_read_are_refused(headers: bytes) -> None:
    prelude = struct.pack(">II", 16 + len(headers), len(headers))
    data = prelude + struct.pack(">I", crc32(prelude)) + headers
    with pytest.raises(BackendGarbage):
        Decoder().feed(data + struct.pack(">I", crc32(data)))


@pytest.mark.parametrize("size", [0, 15, 2**31])
def test_impossible_lengths_are_refused_at_once(size: int) -> None:
    prelude = struct.pack(">II", size, 0)
    with pytest.raises(BackendGarbage):
        Decoder().feed(prelude + struct.pack(">I", crc32(prelude)))


def test_a_page_of_html_is_refused() -> None:
    with pytest.raises(BackendGarbage):
        Decoder().feed(b"<html>nobody at home</html>")
