"""What every HTTP client must do: ours on asyncio and on uvloop, and aiohttp behind the same interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.backends.http.client import HttpClient, connect
from gateway.errors import BackendGarbage, BackendTimeout, BackendUnreachable, GatewayError, StreamBroken
from tests.backends.http_calls import OK, PLAIN, STREAM, Dial, collect, fetch, pieces_until, send
from tests.fakes.certificate import Certificate, make
from tests.fakes.provider import Fail, Provider, Raw, Reply
from tests.support.waiting import until


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider() as provider:
        yield provider


@pytest.fixture(params=[False, True], ids=["ours", "aiohttp"])
async def dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    """Open a client; all are closed after the test."""
    opened: list[HttpClient] = []

    def dial(provider: Provider | str, *, concurrent: int = 4, **more: Any) -> HttpClient:
        url = provider if isinstance(provider, str) else provider.url
        opened.append(connect(url, concurrent=concurrent, name="small", aiohttp=request.param, **more))
        return opened[-1]

    yield dial
    for client in opened:
        await client.aclose()


class TestRequests:
    async def test_the_body_arrives_byte_for_byte_under_the_base_urls_path_and_query(
        self, provider: Provider, dial: Dial
    ) -> None:
        client = dial(provider.url + "/?api-version=7")
        await fetch(client, PLAIN)
        assert provider.last.body == PLAIN
        assert provider.last.path == "/v1/chat/completions?api-version=7"
        assert provider.last.header(b"host") == f"127.0.0.1:{provider.port}".encode()
        assert provider.last.header(b"content-length") == str(len(PLAIN)).encode()
        assert provider.last.header(b"accept-encoding") == b"identity"

    async def test_headers_are_sent_as_given_save_those_of_the_hop(self, provider: Provider, dial: Dial) -> None:
        given = [
            *((b"authorization", b"Bearer k"), (b"x-one", b"1"), (b"x-one", b"2")),
            *((b"Host", b"evil"), (b"Content-Length", b"3"), (b"transfer-encoding", b"chunked")),
            *((b"accept-encoding", b"gzip"), (b"connection", b"close"), (b"expect", b"100-continue")),
        ]
        loop = asyncio.get_running_loop()
        response = await dial(provider).request(
            "POST", "/chat/completions", given, PLAIN, deadline=loop.time() + 5, first_byte_timeout=5
        )
        await response.read(10**6)
        seen = [header for header in provider.last.headers if header[0].startswith((b"x-", b"auth"))]
        assert seen == [(b"authorization", b"Bearer k"), (b"x-one", b"1"), (b"x-one", b"2")]
        names = [name for name, _ in provider.last.headers]
        assert len(set(names)) == len(names) - 1
        assert provider.last.header(b"expect") is None
        assert provider.last.header(b"transfer-encoding") is None

    @pytest.mark.parametrize("value", [b"a\r\nx-evil: 1", b"a\nb", b"a\rb", b"a\0b"])
    async def test_a_header_that_would_tear_the_request_apart_is_never_sent(
        self, provider: Provider, dial: Dial, value: bytes
    ) -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(BackendUnreachable, match="check api_key"):
            await dial(provider).request(
                "POST", "/models", [(b"x-key", value)], b"", deadline=loop.time() + 5, first_byte_timeout=5
            )
        assert not provider.exchanges

    async def test_get_has_no_body(self, provider: Provider, dial: Dial) -> None:
        loop = asyncio.get_running_loop()
        response = await dial(provider).request(
            "GET", "/models", [], b"", deadline=loop.time() + 5, first_byte_timeout=5
        )
        assert b"scripted-small" in await response.read(10**6)
        assert provider.last.header(b"content-length") is None

    async def test_a_large_body_goes_up_whole(self, provider: Provider, dial: Dial) -> None:
        body = PLAIN[:-1] + b', "pad": "' + b"x" * 5_000_000 + b'"}'
        assert b"You said" in await fetch(dial(provider), body)
        assert provider.last.body == body


class TestResponses:
    async def test_status_and_headers_are_handed_on_with_lower_case_names(self, provider: Provider, dial: Dial) -> None:
        provider.script(
            Raw((b"HTTP/1.1 429 Slow Down\r\nRetry-After: 7\r\nX-A: 1\r\nx-a: 2\r\ncontent-length: 2\r\n\r\nno",))
        )
        response = await send(dial(provider))
        assert response.status == 429
        assert response.header(b"retry-after") == b"7"
        assert response.header(b"absent") is None
        assert [value for name, value in response.headers if name == b"x-a"] == [b"1", b"2"]
        assert await response.read(10) == b"no"

    @pytest.mark.parametrize(
        ("raw", "body"),
        [
            ((OK + b"content-length: 5\r\n\r\nhello",), b"hello"),
            ((OK + b"content-length: 0\r\n\r\n",), b""),
            ((b"HTTP/1.1 204 No Content\r\n\r\n",), b""),
            ((OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",), b"hello!"),
            ((OK + b"Transfer-Encoding: Chunked\r\n\r\n0\r\nx-trailer: 1\r\n\r\n",), b""),
            ((OK + b"content-encoding: identity\r\ncontent-length: 2\r\n\r\nok",), b"ok"),
            (
                (
                    b"HTTP/1.1 100 Continue\r\n\r\n",
                    0.005,
                    b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK + b"content-length: 2\r\n\r\nok",
                ),
                b"ok",
            ),
            (
                (
                    b"HT",
                    0.005,
                    b"TP/1.1 200 O",
                    0.005,
                    b"K\r\ncontent-le",
                    0.005,
                    b"ngth: 4\r\n\r",
                    0.005,
                    b"\nab",
                    0.005,
                    b"cd",
                ),
                b"abcd",
            ),
        ],
        ids=["length", "empty", "204", "chunked", "trailer", "identity", "interim", "torn"],
    )
    async def test_every_framing_yields_the_body(
        self, provider: Provider, dial: Dial, raw: tuple[bytes | float, ...], body: bytes
    ) -> None:
        provider.script(Raw(raw), Reply())
        client = dial(provider)
        response = await send(client)
        assert response.header(b"link") is None
        assert response.header(b"x-trailer") is None
        assert await response.read(100) == body
        assert b"You said" in await fetch(client)

    @pytest.mark.parametrize("version", [b"1.0", b"1.1"])
    async def test_a_body_without_length_ends_with_the_connection(
        self, provider: Provider, dial: Dial, version: bytes
    ) -> None:
        provider.script(Raw((b"HTTP/" + version + b" 200 OK\r\n\r\nto the", 0.01, b" end"), then="fin"))
        client = dial(provider)
        assert await fetch(client) == b"to the end"
        await fetch(client)
        assert provider.connections == 2

    async def test_pieces_come_as_they_arrive(self, provider: Provider, dial: Dial) -> None:
        provider.script(Raw((OK + b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n",), then="hang"))
        response = await send(dial(provider), STREAM)
        assert await anext(aiter(response)) == b"one"
        await response.aclose()

    async def test_a_streamed_answer_is_the_same_through_every_oddity(self, provider: Provider, dial: Dial) -> None:
        client = dial(provider)
        provider.script(*[Reply(text="añadió ñandú ☃", huge=300_000)] * 2)
        provider.script(Reply(text="añadió ñandú ☃", huge=300_000, split=True))
        provider.script(Reply(text="añadió ñandú ☃", huge=300_000, framing="eof"))
        bodies = [(await fetch(client, STREAM)).replace(b"chatcmpl-%d" % n, b"") for n in (1, 2, 3, 4)]
        assert len(bodies[0]) > 300_000
        assert len(set(bodies)) == 1

    async def test_reading_after_the_end_yields_nothing_more(self, provider: Provider, dial: Dial) -> None:
        response = await send(dial(provider))
        assert await response.read(10**6)
        assert [piece async for piece in response] == []
        await response.aclose()
        await response.aclose()

    async def test_a_body_beyond_the_limit_is_refused_and_hung_up_on(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(tokens=2000, drip_s=0.001))
        with pytest.raises(BackendGarbage, match="more than the 10000 bytes"):
            await (await send(dial(provider), STREAM)).read(10_000)
        await provider.settled()
        assert provider.last.hung_up

    async def test_redirects_are_not_followed(self, provider: Provider, dial: Dial) -> None:
        provider.script(Raw((b"HTTP/1.1 307 Moved\r\nlocation: /v1/models\r\ncontent-length: 0\r\n\r\n",)))
        assert (await send(dial(provider))).status == 307
        assert len(provider.exchanges) == 1


class TestGarbage:
    @pytest.mark.parametrize(
        "raw",
        [
            b"220 smtp.example.com ESMTP\r\n",
            b"\x15\x03\x01\x00\x02\x02F",
            OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nabc",
            OK + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
            OK + b"content-length: 3, 3\r\n\r\nabc",
            OK + b"content-length: -1\r\n\r\n",
            OK + b"content-length: +2\r\n\r\nab",
            OK + b"content-length: 99999999999999999999999\r\n\r\nab",
            OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            OK + b"content-encoding: lzma\r\ncontent-length: 2\r\n\r\nhi",
            OK + b"no colon here\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            b"HTTP/1.1 2x0 OK\r\n\r\n",
            OK + b"x-big: " + b"a" * 200_000 + b"\r\ncontent-length: 0\r\n\r\n",
            OK + b"x-many: 1\r\n" * 20_000 + b"content-length: 0\r\n\r\n",
        ],
        ids=lambda raw: raw[:48].decode("latin-1").encode("unicode_escape").decode(),
    )
    async def test_a_head_that_is_no_clear_http_is_refused(self, provider: Provider, dial: Dial, raw: bytes) -> None:
        provider.script(Raw((raw,), then="hang"))
        with pytest.raises(BackendGarbage, match="small sent"):
            await send(dial(provider), first_byte_timeout=2.0)
        await until(lambda: provider.open_connections == 0)

    @pytest.mark.parametrize(
        "body", [b"zz\r\nhello\r\n", b"-5\r\nhello\r\n", b"5\r\nhello!!\r\n", b"fffffffffffffffff\r\nhello\r\n"]
    )
    async def test_chunks_that_are_none_end_the_answer_after_what_was_good(
        self, provider: Provider, dial: Dial, body: bytes
    ) -> None:
        provider.script(Raw((OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", 0.02, body), then="hang"))
        response = await send(dial(provider), STREAM)
        got = bytearray()
        with pytest.raises((BackendGarbage, StreamBroken)):  # aiohttp cannot say which
            await collect(response, got)
        assert got.startswith(b"abc")
        await until(lambda: provider.open_connections == 0)


class TestCuts:
    @pytest.mark.parametrize("how", ["fin", "rst"])
    @pytest.mark.parametrize("partial", [b"", b"HTTP/1.1 200 OK\r\ncontent-le"])
    async def test_before_the_head_is_whole_the_backend_is_unreachable(
        self, provider: Provider, dial: Dial, how: Any, partial: bytes
    ) -> None:
        provider.script(Raw((partial, 0.01), then=how))
        with pytest.raises(BackendUnreachable, match="without an answer"):
            await send(dial(provider))
        assert len(provider.exchanges) == 1

    @pytest.mark.parametrize("how", ["fin", "rst"])
    @pytest.mark.parametrize(
        "framing", [b"content-length: 9\r\n\r\nhello", b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\na"]
    )
    async def test_in_the_body_what_came_is_delivered_and_then_the_stream_is_broken(
        self, provider: Provider, dial: Dial, how: Any, framing: bytes
    ) -> None:
        provider.script(Raw((OK + framing, 0.01), then=how))
        response = await send(dial(provider))
        got = bytearray()
        with pytest.raises(StreamBroken):
            await collect(response, got)
        assert got.startswith(b"hello")

    async def test_a_cut_body_is_never_read_as_a_whole_one(self, provider: Provider, dial: Dial) -> None:
        client = dial(provider)
        for how in ("fin", "rst"):
            provider.script(Reply(cut=how))
            with pytest.raises(StreamBroken):
                await fetch(client)

    async def test_refused_connections_and_unknown_names_are_unreachable_and_tell_no_address(
        self, provider: Provider, dial: Dial
    ) -> None:
        await provider.refuse()
        with pytest.raises(BackendUnreachable) as refused:
            await send(dial(provider))
        assert "refused" in refused.value.message
        assert "127.0.0.1" not in refused.value.message
        assert refused.value.backend == "small"
        assert (refused.value.refused, refused.value.needs_operator) == (True, False)
        with pytest.raises(BackendUnreachable, match="name cannot be resolved"):
            await send(dial("http://nowhere.invalid/v1"))


class TestTime:
    async def test_no_head_in_time(self, provider: Provider, dial: Dial) -> None:
        provider.script(Fail(cut="hang"))
        with pytest.raises(BackendTimeout, match="small did not begin to answer in time"):
            await send(dial(provider), first_byte_timeout=0.05)
        await provider.settled()
        assert provider.last.hung_up

    async def test_a_head_that_drips_wins_no_time(self, provider: Provider, dial: Dial) -> None:
        drip: list[bytes | float] = [0.01, b"x-a: 1\r\n"] * 500
        provider.script(Raw((OK, *drip)))
        with pytest.raises(BackendTimeout):
            await send(dial(provider), first_byte_timeout=0.1)

    async def test_interim_responses_win_no_time(self, provider: Provider, dial: Dial) -> None:
        drip: list[bytes | float] = [0.01, b"HTTP/1.1 100 Continue\r\n\r\n"] * 500
        provider.script(Raw(tuple(drip)))
        with pytest.raises(BackendTimeout):
            await send(dial(provider), first_byte_timeout=0.1)

    async def test_a_head_without_a_first_byte_is_no_beginning(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(prefill_s=9))
        response = await send(dial(provider), STREAM, first_byte_timeout=0.05)
        assert response.status == 200
        with pytest.raises(BackendTimeout, match="begin"):
            await anext(aiter(response))
        await provider.settled()

    async def test_after_the_first_byte_the_deadline_counts(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(tokens=4, drip_s=0.03), Reply(cut="hang", after=2))
        client = dial(provider)
        assert b"t3" in await fetch(client, STREAM, first_byte_timeout=0.08)
        response = await send(client, STREAM, first_byte_timeout=0.08, deadline_s=0.2)
        got = bytearray()
        with pytest.raises(BackendTimeout, match="small did not finish in time"):
            await collect(response, got)
        assert b"said" in got
        await provider.settled()
        assert provider.last.hung_up
        assert provider.last.chunks_sent == 2

    async def test_a_deadline_in_the_past_fails_at_once(self, provider: Provider, dial: Dial) -> None:
        provider.script(Fail(cut="hang"))
        with pytest.raises((BackendTimeout, BackendUnreachable)):
            await send(dial(provider), deadline_s=-1.0)


class TestCrowding:
    async def test_waiting_in_line_ends_in_time(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(cut="hang", after=1))
        client = dial(provider, concurrent=1)
        first = await send(client, STREAM)
        with pytest.raises(BackendTimeout):
            await send(client, first_byte_timeout=0.05)
        await first.aclose()
        assert b"You said" in await fetch(client)

    async def test_whoever_waits_gets_the_place_of_a_stream_that_was_hung_up_on(
        self, provider: Provider, dial: Dial
    ) -> None:
        provider.script(Reply(cut="hang", after=1))
        client = dial(provider, concurrent=1)
        first = await send(client, STREAM)
        second = asyncio.ensure_future(fetch(client))
        await asyncio.sleep(0.02)
        assert not second.done()
        await first.aclose()
        assert b"You said" in await second

    async def test_whoever_gives_up_waiting_leaves_no_hole(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(cut="hang", after=1))
        client = dial(provider, concurrent=1)
        first = await send(client, STREAM)
        waiting = [asyncio.ensure_future(fetch(client)) for _ in range(3)]
        await asyncio.sleep(0.02)
        waiting[0].cancel()
        waiting[2].cancel()
        await first.aclose()
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert b"You said" in await fetch(client, first_byte_timeout=1.0)


class TestHangingUp:
    async def test_closing_an_unfinished_answer_is_seen_by_the_backend_at_once(
        self, provider: Provider, dial: Dial
    ) -> None:
        provider.script(Reply(tokens=50, drip_s=0.002))
        response = await send(dial(provider), STREAM)
        await pieces_until(response, b"t2")
        await response.aclose()
        await provider.settled()
        assert provider.last.hung_up
        assert 3 <= provider.last.chunks_sent < 50
        with pytest.raises(StreamBroken):
            await collect(response, bytearray())

    async def test_an_answer_never_read_is_hung_up_on_too(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(cut="hang", after=1))
        response = await send(dial(provider), STREAM)
        await response.aclose()
        await provider.settled()
        assert provider.last.hung_up

    async def test_cancelling_while_waiting_for_the_head(self, provider: Provider, dial: Dial) -> None:
        provider.script(Fail(cut="hang"))
        client = dial(provider, concurrent=1)
        task = asyncio.ensure_future(send(client))
        await until(lambda: provider.exchanges)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await provider.settled()
        assert provider.last.hung_up
        assert b"You said" in await fetch(client)

    async def test_cancelling_while_reading(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(cut="hang", after=1))
        client = dial(provider, concurrent=1)
        task = asyncio.ensure_future(fetch(client, STREAM))
        await until(lambda: provider.exchanges)
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await provider.settled()
        assert b"You said" in await fetch(client)

    async def test_cancelling_while_connecting(self, provider: Provider, dial: Dial, certificate: Certificate) -> None:
        arrived, left = asyncio.Event(), asyncio.Event()

        async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set()  # …and never a word of the TLS handshake
            while await reader.read(4096):
                pass
            left.set()
            writer.close()

        server = await asyncio.start_server(mute, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = dial(f"https://127.0.0.1:{port}/v1", concurrent=1, tls=certificate.client)
        task = asyncio.ensure_future(send(client))
        await asyncio.wait_for(arrived.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(left.wait(), 30)
        with pytest.raises((BackendUnreachable, BackendTimeout)):  # the place is free again
            await send(client, first_byte_timeout=0.05)
        server.close()

    async def test_closing_the_client_ends_what_is_under_way_and_what_waits(
        self, provider: Provider, dial: Dial
    ) -> None:
        provider.script(Reply(cut="hang", after=1))
        client = dial(provider, concurrent=1)
        response = await send(client, STREAM)
        await pieces_until(response, b"You")
        waiting = asyncio.ensure_future(send(client))
        await asyncio.sleep(0.01)
        await client.aclose()
        with pytest.raises(GatewayError):
            await anext(aiter(response))
        with pytest.raises(BackendUnreachable):
            await waiting
        with pytest.raises(BackendUnreachable):
            await send(client)
        await until(lambda: provider.open_connections == 0)


class TestBackPressure:
    async def test_a_slow_consumer_slows_the_backend_down_and_loses_nothing(
        self, provider: Provider, dial: Dial
    ) -> None:
        size = 32_000_000
        body = bytes(range(256)) * (size // 256)
        provider.script(Raw((OK + b"content-length: %d\r\n\r\n" % size, body)))
        response = await send(dial(provider))
        await until(lambda: provider.unsent > size // 2)
        got = b"".join([piece async for piece in response])
        assert got == body

    async def test_reading_whole_is_not_slowed_down(self, provider: Provider, dial: Dial) -> None:
        provider.script(Raw((OK + b"content-length: 4000000\r\n\r\n", b"x" * 4_000_000)))
        assert len(await fetch(dial(provider))) == 4_000_000


class TestTls:
    async def test_it_speaks_tls_and_hangs_up(self, dial: Dial, certificate: Certificate) -> None:
        async with Provider(tls=certificate.server) as provider:
            client = dial(provider, tls=certificate.client)
            assert b"[DONE]" in await fetch(client, STREAM)
            assert b"You said" in await fetch(client)
            provider.script(Reply(cut="hang", after=2))
            response = await send(client, STREAM)
            await pieces_until(response, b"said")
            await response.aclose()
            await provider.settled()
            assert provider.last.hung_up
            await client.aclose()

    async def test_a_certificate_that_nobody_vouches_for_is_refused(self, dial: Dial, certificate: Certificate) -> None:
        async with Provider(tls=certificate.server) as provider:
            client = dial(provider)
            with pytest.raises(BackendUnreachable, match="certificate is not trusted"):
                await send(client)

    async def test_a_name_is_resolved_and_checked(self, dial: Dial, certificate: Certificate) -> None:
        async with Provider(tls=certificate.server) as provider:
            client = dial(provider.url.replace("127.0.0.1", "localhost"), tls=certificate.client)
            assert b"You said" in await fetch(client)
            assert provider.last.header(b"host") == f"localhost:{provider.port}".encode()
            await client.aclose()
