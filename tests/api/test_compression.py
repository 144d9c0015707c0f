"""Who gets an answer encoded, and that it can be read piece by piece."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.api.server.asgi import Headers, decoded
from gateway.api.server.caller import Caller
from gateway.api.server.compression import LEAST_BYTES, Encoded, chosen, worth_it
from gateway.errors import BadRequest, BodyTooLarge, UnsupportedMediaType
from gateway.runtime.codings import Coding, Decoder, decode, encode
from gateway.runtime.off_loop import OffLoop

CODINGS: tuple[Coding, ...] = ("gzip", "deflate", "br", "zstd")
JSON: Headers = [(b"content-type", b"application/json")]
EVENTS: Headers = [(b"content-type", b"text/event-stream; charset=utf-8")]


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip", "gzip"),
        ("x-gzip", "gzip"),
        ("GZIP", "gzip"),
        ("br", "br"),
        ("zstd", "zstd"),
        ("deflate", "deflate"),
        ("gzip, br, zstd", "zstd"),
        ("br, gzip", "gzip"),
        ("gzip;q=0.5, br;q=0.8", "br"),
        ("gzip; q=0.5 , br;q=0.8, identity;q=1", None),
        ("gzip;q=0, br;q=0.1, identity;q=0", "br"),
        ("*", "gzip"),
        ("*;q=0.5", "gzip"),
        ("gzip;q=0, *", None),
        ("br, *;q=0.1", "br"),
        ("zstd;q=0, *", "gzip"),
        ("*;q=0", None),
        ("identity", None),
        ("identity;q=0", None),
        ("compress, lzma", None),
        ("gzip;q=nonsense", None),
        ("gzip;q=0.000", None),
        ("", None),
        (",;, ;q=1", None),
    ],
)
def test_the_client_decides_by_weight_and_then_we_by_cost(accept: str, coding: str | None) -> None:
    assert chosen(accept.encode(), "auto") == coding
    assert chosen(accept.encode(), "on") == coding
    assert chosen(accept.encode(), "off") is None


@pytest.mark.parametrize(
    "accept", ["gzip, deflate", "gzip, deflate, br, zstd", "gzip,deflate", "br, gzip, deflate", "Gzip, Deflate, Br"]
)
def test_what_libraries_offer_by_themselves_is_taken_up_only_where_the_operator_wants(accept: str) -> None:
    assert chosen(accept.encode(), "auto") is None
    assert chosen(accept.encode(), "on") is not None
    assert chosen(accept.encode() + b";q=0.9", "auto") is not None, "who weighs them means it"


@pytest.mark.parametrize(
    ("headers", "size", "worth"),
    [
        (JSON, LEAST_BYTES, True),
        (JSON, LEAST_BYTES - 1, False),
        (JSON, None, True),
        (EVENTS, None, True),
        ([(b"content-type", b"audio/mpeg")], 10**6, False),
        ([(b"content-type", b"application/octet-stream")], None, False),
        ([], 10**6, False),
        ([*JSON, (b"content-encoding", b"gzip")], 10**6, False),
    ],
)
def test_only_what_gets_smaller_is_encoded(headers: Headers, size: int | None, worth: bool) -> None:
    assert worth_it(headers, size) is worth


class Heard:
    """A caller that remembers what it was answered."""

    method, path, query = "POST", "/", b""

    def __init__(self) -> None:
        self.headers: Headers = []
        self.told: list[Any] = []

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        self.told = [status, dict(headers), body]

    def begin(self, headers: Headers) -> None:
        self.told = [dict(headers)]

    def put(self, piece: bytes) -> bool:
        self.told.append(piece)
        return False

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        self.told += [last, broken]


def encoded_caller(coding: Coding) -> tuple[Heard, Caller]:
    heard = Heard()
    return heard, Encoded(heard, coding)  # type: ignore[arg-type]


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("size", [1024, 2_000_000])
async def test_a_whole_answer_is_encoded_and_says_so(coding: Coding, size: int) -> None:
    heard, caller = encoded_caller(coding)
    await caller.whole(200, JSON, b"x" * size)
    status, headers, body = heard.told
    assert (status, headers[b"content-encoding"], headers[b"vary"]) == (200, coding.encode(), b"accept-encoding")
    assert len(body) < size
    assert decode(body, coding, size) == b"x" * size


async def test_a_small_one_stays_as_it_is_but_might_have_been_another() -> None:
    heard, caller = encoded_caller("gzip")
    await caller.whole(404, JSON, b"{}")
    assert heard.told == [404, {**dict(JSON), b"vary": b"accept-encoding"}, b"{}"]


@pytest.mark.parametrize("coding", CODINGS)
async def test_every_event_can_be_read_as_soon_as_it_is_sent(coding: Coding) -> None:
    heard, caller = encoded_caller(coding)
    caller.begin(EVENTS)
    assert heard.told[0][b"content-encoding"] == coding.encode()
    reading = Decoder(coding)
    for number in range(50):
        event = b'data: {"delta": "%d"}\n\n' % number
        assert caller.put(event) is False
        assert reading.feed(heard.told[-1], 1000) == event
    caller.put(b"")
    assert heard.told[-1] == b"", "nothing to say is not a flush"
    await caller.end(b"data: [DONE]\n\n", broken=True)
    last, broken = heard.told[-2:]
    assert reading.feed(last, 1000) == b"data: [DONE]\n\n"
    assert (reading.ended, broken) == (True, True)


async def test_a_stream_of_sound_is_not_touched() -> None:
    heard, caller = encoded_caller("gzip")
    caller.begin([(b"content-type", b"audio/mpeg")])
    caller.put(b"ID3")
    await caller.end(b"end")
    assert b"content-encoding" not in heard.told[0]
    assert heard.told[1:] == [b"ID3", b"end", False]


# -- requests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("size", [0, 10, 300_000, 3_000_000])
async def test_a_request_of_any_size_is_decoded(coding: Coding, size: int) -> None:
    assert await decoded(encode(b"a" * size, coding), coding.upper().encode(), 4_000_000, OffLoop()) == b"a" * size


async def test_identity_is_what_it_is() -> None:
    assert await decoded(b"{}", b"identity", 10, OffLoop()) == b"{}"


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("limit", [1000, 2_000_000])
async def test_what_grows_beyond_the_limit_is_too_large(coding: Coding, limit: int) -> None:
    with pytest.raises(BodyTooLarge):
        await decoded(encode(bytes(limit + 1), coding), coding.encode(), limit, OffLoop())


async def test_what_grows_large_does_so_beside_the_loop() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.get_running_loop().create_task(tick())
    await decoded(encode(bytes(20 * 2**20), "gzip"), b"gzip", 20 * 2**20, OffLoop())
    ticking.cancel()
    assert ticks > 0


@pytest.mark.parametrize(
    ("header", "body", "error"),
    [
        (b"compress", b"{}", UnsupportedMediaType),
        (b"\xff", b"{}", UnsupportedMediaType),
        (b"gzip", b"{}", BadRequest),
        (b"br", b"{}", BadRequest),
        (b"zstd", b"{}", BadRequest),
        (b"deflate", b"{}", BadRequest),
        (b"gzip", encode(b"{}", "gzip")[:-1], BadRequest),
        (b"gzip, br", encode(encode(b"{}", "gzip"), "br"), UnsupportedMediaType),
        (b"gzip", encode(b"", "gzip") * 1000, BadRequest),
        (b"zstd", encode(b"", "zstd") * 1000, BadRequest),
    ],
)
async def test_what_cannot_be_decoded_is_the_clients_mistake(
    header: bytes, body: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await decoded(body, header, 1000, OffLoop())
