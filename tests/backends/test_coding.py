"""A backend that encodes its answers though nobody asked: they are read, and no header speaks of the coding."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.backends.http.client import HttpClient, connect
from gateway.backends.http.coding import DecodedBody
from gateway.errors import BackendError, BackendGarbage, StreamBroken
from gateway.runtime.codings import Coding, encode, encoder
from tests.backends.http_calls import OK, STREAM, collect, send
from tests.fakes.provider import Provider, Raw

CODINGS: tuple[Coding, ...] = ("gzip", "deflate", "br", "zstd")
BODY = b'{"id": "x", "choices": []}' * 100


@pytest.fixture(params=[False, True], ids=["ours", "aiohttp"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Provider, HttpClient]]:
    async with Provider() as provider:
        client = connect(provider.url, concurrent=2, name="small", aiohttp=request.param)
        yield provider, client
        await client.aclose()


def plain(body: bytes, coding: str, *, cut: int = 0) -> Raw:
    head = OK + b"Content-Encoding: %b\r\ncontent-length: %d\r\n\r\n" % (coding.encode(), len(body) - cut)
    return Raw((head + body[: len(body) - cut],))


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_plain_body_is_read(client: tuple[Provider, HttpClient], coding: Coding) -> None:
    provider, http = client
    for _ in range(2):
        provider.script(plain(encode(BODY, coding), coding.upper()))
        response = await send(http)
        assert await response.read(10_000) == BODY
        assert response.header(b"content-encoding") is None
        assert response.header(b"content-length") is None


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_stream_is_read_event_by_event(client: tuple[Provider, HttpClient], coding: Coding) -> None:
    provider, http = client
    writing = encoder(coding)
    events = [b"data: %d\n\n" % number for number in range(5)]
    coded = [*map(writing.piece, events), writing.last(b"data: [DONE]\n\n")]
    script: list[Any] = [OK + b"content-encoding: %b\r\ntransfer-encoding: chunked\r\n\r\n" % coding.encode()]
    for piece in coded:
        script += [b"%x\r\n%b\r\n" % (len(piece), piece), 0.01]
    provider.script(Raw((*script, b"0\r\n\r\n")))
    response = await send(http, STREAM)
    pieces = [piece async for piece in response]
    assert pieces == [*events, b"data: [DONE]\n\n"]


@pytest.mark.parametrize("coding", CODINGS)
async def test_what_is_cut_or_is_none_fails(client: tuple[Provider, HttpClient], coding: Coding) -> None:
    provider, http = client
    for step in (plain(encode(BODY, coding), coding, cut=9), plain(b"\xffgarbage" * 9, coding)):
        provider.script(step)
        response = await send(http)
        with pytest.raises((BackendGarbage, StreamBroken)):
            await response.read(10_000)
        await response.aclose()


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_bomb_is_refused_and_the_limit_is_of_what_came_out(
    client: tuple[Provider, HttpClient], coding: Coding
) -> None:
    provider, http = client
    for size in (100_000, 40 * 2**20):
        provider.script(plain(encode(bytes(size), coding), coding))
        response = await send(http)
        with pytest.raises(BackendGarbage):
            await response.read(50_000)
        await response.aclose()


async def test_what_was_good_before_the_garbage_is_handed_on(client: tuple[Provider, HttpClient]) -> None:
    provider, http = client
    head = OK + b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
    good = encoder("gzip").piece(b"data: 1\n\n")
    provider.script(Raw((head + b"%x\r\n%b\r\n" % (len(good), good), 0.02, b"4\r\n\xff\xff\xff\xff\r\n0\r\n\r\n")))
    response = await send(http, STREAM)
    got = bytearray()
    with pytest.raises(BackendError):
        await collect(response, got)
    assert got == b"data: 1\n\n"


def test_no_body_at_all_is_whole() -> None:
    DecodedBody([(b"content-encoding", b"gzip")], "small").end()
    with pytest.raises(BackendGarbage, match="not requested"):
        DecodedBody([(b"content-encoding", b"lzma")], "small")
