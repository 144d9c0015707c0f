"""What our own client does beyond the interface: reuse connections, share few among many, lose none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.backends.http.client import HttpClient, connect
from gateway.errors import BackendUnreachable, StreamBroken
from tests.backends.http_calls import OK, PLAIN, STREAM, Dial, fetch, send
from tests.fakes.provider import Fail, Provider, Raw, Reply
from tests.fakes.provider_script import Step
from tests.support.waiting import until


class RefusesEarly(asyncio.Protocol):
    """Answers 413 to the first bytes and reads no more."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.pause_reading()
        self.transport.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")

    def connection_lost(self, exc: Exception | None) -> None:
        self.left.set()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider() as provider:
        yield provider


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Open a client; all are closed after the test."""
    opened: list[HttpClient] = []

    def dial(provider: Provider | str, *, concurrent: int = 4, **more: Any) -> HttpClient:
        url = provider if isinstance(provider, str) else provider.url
        opened.append(connect(url, concurrent=concurrent, name="small", **more))
        return opened[-1]

    yield dial
    for client in opened:
        await client.aclose()


class TestReuse:
    async def test_requests_one_after_the_other_share_a_connection(self, provider: Provider, dial: Dial) -> None:
        client = dial(provider)
        for _ in range(3):
            await fetch(client, STREAM)
            await fetch(client)
        assert provider.connections == 1

    async def test_connection_close_is_obeyed(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(keep_alive=False), Reply(keep_alive=False))
        client = dial(provider)
        await fetch(client)
        await fetch(client, STREAM)
        await fetch(client)
        assert provider.connections == 3

    async def test_an_idle_connection_closed_by_the_server_is_simply_replaced(
        self, provider: Provider, dial: Dial
    ) -> None:
        client = dial(provider)
        await fetch(client)
        provider.drop_idle()
        await until(lambda: provider.open_connections == 0)
        assert b"You said" in await fetch(client)

    @pytest.mark.parametrize("how", ["fin", "rst"])
    async def test_what_a_backend_may_have_heard_is_not_sent_again(
        self, provider: Provider, dial: Dial, how: Any
    ) -> None:
        """A second call is a second attempt, with a line in the journal before it."""
        provider.script(Reply(), Fail(cut=how), Reply())
        client = dial(provider)
        await fetch(client)
        with pytest.raises(BackendUnreachable, match="without an answer"):
            await fetch(client)
        assert [exchange.connection for exchange in provider.exchanges] == [1, 1]
        assert b"You said" in await fetch(client)

    async def test_once_a_byte_was_heard_nothing_is_sent_again(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(), Raw((b"HTTP/1.1 200",), then="fin"))
        client = dial(provider)
        await fetch(client)
        with pytest.raises(BackendUnreachable):
            await fetch(client)
        assert len(provider.exchanges) == 2

    async def test_a_backend_that_closes_every_time_is_unreachable(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply())
        client = dial(provider)
        await fetch(client)
        provider.script(*[Fail(cut="fin")] * 9)
        with pytest.raises(BackendUnreachable):
            await fetch(client)
        assert len(provider.exchanges) <= 4

    async def test_idle_connections_are_closed_after_a_while(self, provider: Provider, dial: Dial) -> None:
        client = dial(provider, idle_timeout_s=0.05)
        await fetch(client)
        await until(lambda: provider.open_connections == 0)
        assert b"You said" in await fetch(client)

    async def test_the_connection_used_last_is_reused_first(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(prefill_s=0.02), Reply(prefill_s=0.04))
        client = dial(provider)
        first, second = await send(client, STREAM), await send(client, STREAM)
        await first.read(10**6)
        await second.read(10**6)
        assert client.stats()["idle"] == 2
        for _ in range(3):
            await fetch(client)
        assert {exchange.connection for exchange in list(provider.exchanges)[2:]} == {2}

    async def test_a_backend_that_dies_over_a_request_is_not_asked_again(self, provider: Provider, dial: Dial) -> None:
        provider.script(Reply(), Fail(delay_s=1.1, cut="rst"))
        client = dial(provider)
        await fetch(client)
        with pytest.raises(BackendUnreachable, match="without an answer"):
            await fetch(client)
        assert len(provider.exchanges) == 2

    async def test_a_server_that_restarted_costs_no_request(self, provider: Provider, dial: Dial) -> None:
        client = dial(provider)
        await asyncio.gather(*[fetch(client) for _ in range(4)])
        await provider.refuse()
        await provider.listen()
        answers = await asyncio.gather(*[fetch(client) for _ in range(4)])
        assert all(b"You said" in answer for answer in answers)

    async def test_an_answer_before_the_request_was_all_sent_costs_the_connection(self, dial: Dial) -> None:
        refusing = RefusesEarly()
        server = await asyncio.get_running_loop().create_server(lambda: refusing, "127.0.0.1", 0)
        client = dial(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        response = await send(client, b"x" * 30_000_000)
        assert response.status == 413
        assert await response.read(10) == b"no"
        assert client.stats()["idle"] == 0
        server.close()
        refusing.transport.abort()
        await refusing.left.wait()


class TestDesync:
    async def test_a_second_answer_in_the_same_bytes_reaches_nobody(self, provider: Provider, dial: Dial) -> None:
        good = OK + b"content-length: 5\r\n\r\nright"
        evil = OK + b"content-length: 5\r\n\r\nwrong"
        provider.script(Raw((good + evil,)), Reply())
        client = dial(provider)
        assert await fetch(client) == b"right"
        assert b"You said" in await fetch(client)
        assert provider.connections == 2

    async def test_bytes_that_nobody_asked_for_cost_the_connection(self, provider: Provider, dial: Dial) -> None:
        good = OK + b"content-length: 5\r\n\r\nright"
        evil = OK + b"content-length: 5\r\n\r\nwrong"
        provider.script(Raw((good, 0.01, evil)), Reply())
        client = dial(provider)
        assert await fetch(client) == b"right"
        await until(lambda: provider.open_connections == 0)
        assert b"You said" in await fetch(client)


class TestCrowding:
    async def test_no_more_connections_than_allowed_and_first_come_first_served(
        self, provider: Provider, dial: Dial
    ) -> None:
        provider.default = Reply(delay_s=0.01)
        client, done = dial(provider, concurrent=2), []

        async def one(number: int) -> None:
            await fetch(client, PLAIN.replace(b"two", b"n%d" % number))
            done.append(number)

        await asyncio.gather(*[one(number) for number in range(8)])
        assert provider.connections <= 2
        assert [exchange.json["messages"][0]["content"] for exchange in provider.exchanges] == [
            f"n{number} words" for number in range(8)
        ]
        assert sorted(done) == list(range(8))


class TestStorm:
    async def test_whatever_happens_every_place_comes_back(self, provider: Provider, dial: Dial) -> None:
        chance = random.Random(7)
        odd: list[Step] = [
            *(Reply(tokens=3), Reply(tokens=3), Reply(keep_alive=False), Fail(500), Fail(cut="fin"), Fail(cut="rst")),
            *(Fail(cut="hang"), Reply(cut="rst", after=2), Reply(cut="hang", after=2), Reply(delay_s=0.01)),
            *(Raw((b"nonsense",)), Raw((OK + b"content-length: 1\r\n\r\nab",))),
        ]
        client = dial(provider, concurrent=3)

        async def one() -> None:
            provider.script(chance.choice(odd))
            task = asyncio.ensure_future(
                fetch(client, chance.choice([PLAIN, STREAM]), first_byte_timeout=0.15, deadline_s=0.2)
            )
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() * 0.02)
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        for _ in range(5):
            await asyncio.gather(*[one() for _ in range(12)])
        provider._steps.clear()
        provider.default = Reply()
        answers = await asyncio.gather(*[fetch(client) for _ in range(9)])
        assert all(b"You said" in answer for answer in answers)
        assert client.stats()["busy"] == 0
        assert client.stats()["waiting"] == 0
        assert provider.open_connections <= 3


class TestPart:
    async def test_the_backend_sees_the_hang_up_and_what_it_had_sent_still_arrives(
        self, provider: Provider, dial: Dial
    ) -> None:
        client = dial(provider)
        provider.script(Reply(tokens=400, drip_s=0.01))
        response = await send(client, STREAM)
        got = bytearray()

        def some(piece: bytes) -> bool:
            got.extend(piece)
            return b"t5" not in got

        assert await response.pipe_to(some)
        assert response.half_close()

        def rest(piece: bytes) -> bool:
            got.extend(piece)
            return True

        with pytest.raises(StreamBroken):
            await response.pipe_to(rest)
        await response.aclose()
        assert provider.last.hung_up
        assert got.count(b'"content": "t') + got.count(b'"content":"t') == provider.last.tokens_sent < 100
        assert client.stats()["idle"] == 0

    async def test_where_the_answer_is_over_there_is_nothing_to_part_from(self, provider: Provider, dial: Dial) -> None:
        response = await send(dial(provider), PLAIN)
        await response.read(10**6)
        assert not response.half_close()
