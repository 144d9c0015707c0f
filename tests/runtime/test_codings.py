"""What was encoded is read again, in any pieces; a bomb is noticed, and so is garbage."""

from __future__ import annotations

import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gateway.runtime.codings import Coding, Decoder, Oversized, UnknownCoding, decode, encode, encoder, parse_coding

CODINGS: tuple[Coding, ...] = ("gzip", "deflate", "br", "zstd")
BODY = b'{"model": "small", "messages": []}' * 50


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("gzip", "gzip"),
        (" GZIP ", "gzip"),
        ("x-gzip", "gzip"),
        ("identity", None),
        ("", None),
        ("identity ,zstd", "zstd"),
    ],
)
def test_the_header_names_the_coding(header: str, coding: str | None) -> None:
    assert parse_coding(header) == coding


@pytest.mark.parametrize("header", ["compress", "gzip, lzma", "gzip;q=1", "gzip, gzip", "deflate,identity ,zstd"])
def test_what_nobody_here_reads_is_told(header: str) -> None:
    with pytest.raises(UnknownCoding):
        parse_coding(header)


@pytest.mark.parametrize("coding", CODINGS)
@given(body=st.binary(max_size=3000))
def test_a_whole_body_is_read_again(coding: Coding, body: bytes) -> None:
    assert decode(encode(body, coding), coding, 3000) == body


@pytest.mark.parametrize("coding", CODINGS)
@given(pieces=st.lists(st.binary(max_size=200), max_size=8), last=st.binary(max_size=20))
def test_every_piece_of_a_stream_can_be_read_before_the_next_is_there(
    coding: Coding, pieces: list[bytes], last: bytes
) -> None:
    writing, reading = encoder(coding), Decoder(coding)
    for piece in pieces:
        assert reading.feed(writing.piece(piece), 1000) == piece
        assert not reading.ended
    assert reading.feed(writing.last(last), 1000) == last
    assert reading.ended


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_body_may_come_in_any_pieces(coding: Coding, step: int) -> None:
    encoded, reading = encode(BODY, coding), Decoder(coding)
    pieces = [encoded[start : start + step] for start in range(0, len(encoded), step)]
    assert b"".join(reading.feed(piece, 10_000) for piece in pieces) == BODY
    assert reading.ended


def test_other_peoples_encoders_are_understood() -> None:
    raw = zlib.compressobj(wbits=-15)
    assert decode(raw.compress(BODY) + raw.flush(), "deflate", 10_000) == BODY
    assert decode(gzip.compress(BODY[:100]) + gzip.compress(BODY[100:]), "gzip", 10_000) == BODY
    assert decode(brotli.compress(BODY, quality=11), "br", 10_000) == BODY
    frames = zstandard.compress(BODY[:100]) + zstandard.compress(BODY[100:], level=19)
    assert decode(frames, "zstd", 10_000) == BODY


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_may_have_exactly_the_most_and_no_more(coding: Coding) -> None:
    encoded = encode(BODY, coding)
    assert decode(encoded, coding, len(BODY)) == BODY
    with pytest.raises(Oversized):
        decode(encoded, coding, len(BODY) - 1)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_bomb_is_noticed_before_it_goes_off(coding: Coding) -> None:
    bomb = encode(bytes(100 * 2**20), coding)
    assert len(bomb) < 2**20
    with pytest.raises(Oversized):
        decode(bomb, coding, 2**20)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("broken", [b"", b"{}", BODY, b"\xff" * 100])
def test_garbage_is_an_error_of_ours(coding: Coding, broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(broken, coding, 10_000)


@pytest.mark.parametrize("coding", CODINGS)
def test_what_breaks_off_is_an_error(coding: Coding) -> None:
    encoded = encode(BODY, coding)
    for length in (1, len(encoded) // 2, len(encoded) - 1):
        with pytest.raises(ValueError, match=r"."):
            decode(encoded[:length], coding, 10_000)
