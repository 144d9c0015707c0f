"""Behind a proxy: the environment decides, aiohttp carries it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.http.aiohttp_client import AiohttpClient
from gateway.backends.http.client import HttpClient, connect
from gateway.backends.http.pool import PooledClient
from gateway.errors import BackendUnreachable
from tests.backends.http_calls import STREAM, fetch
from tests.fakes.certificate import make
from tests.fakes.provider import Provider, Reply


class Tunnel(asyncio.Protocol):
    """A CONNECT proxy: after its 200 it only passes bytes on."""

    def __init__(self, seen: list[bytes], status: bytes) -> None:
        self._seen = seen
        self._status = status
        self._other: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._other:
            self._other.close()

    def data_received(self, data: bytes) -> None:
        if self._other:
            self._other.write(data)
            return
        self._seen.append(data)
        host, _, port = data.split(b" ")[1].partition(b":")
        self._task = asyncio.ensure_future(self._dial(host.decode(), int(port)))

    async def _dial(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._other, _ = await loop.create_connection(lambda: Back(self._transport), host, port)
        self._transport.write(b"HTTP/1.1 " + self._status + b"\r\n\r\n")


class Back(asyncio.Protocol):
    def __init__(self, front: asyncio.Transport) -> None:
        self._front = front

    def data_received(self, data: bytes) -> None:
        self._front.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.close()


@asynccontextmanager
async def tunnel(seen: list[bytes], status: bytes = b"200 OK") -> AsyncIterator[str]:
    server = await asyncio.get_running_loop().create_server(lambda: Tunnel(seen, status), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.sleep(0.01)  # both sides of a tunnel hear of the end


@asynccontextmanager
async def connected(base_url: str, **more: object) -> AsyncIterator[HttpClient]:
    client = connect(base_url, concurrent=2, name="small", **more)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await client.aclose()


async def test_plain_http_goes_through_the_proxy_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Provider() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with connected("http://models.example/v1") as client:
            assert isinstance(client, AiohttpClient)
            await fetch(client)
        assert proxy.last.path == "http://models.example/v1/chat/completions"
        assert proxy.last.header(b"host") == b"models.example"


async def test_https_goes_through_a_tunnel_and_is_checked_end_to_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[bytes] = []
    certificate = make(tmp_path)
    async with tunnel(seen) as proxy, Provider(tls=certificate.server) as provider:
        monkeypatch.setenv("https_proxy", proxy)
        async with connected(provider.url, tls=certificate.client) as client:
            provider.script(Reply(text="through the tunnel"))
            assert b"tunnel" in await fetch(client, STREAM)
            await provider.settled()
        async with connected(provider.url) as client:
            with pytest.raises(BackendUnreachable, match="certificate is not trusted"):
                await fetch(client)
    assert seen[0].startswith(b"CONNECT 127.0.0.1:%d" % provider.port)


async def test_a_proxy_that_refuses_is_named_as_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate = make(tmp_path)
    async with tunnel([], b"407 Proxy Authentication Required") as proxy, Provider(tls=certificate.server) as provider:
        monkeypatch.setenv("https_proxy", proxy)
        async with connected(provider.url, tls=certificate.client) as client:
            with pytest.raises(BackendUnreachable, match="the proxy would not connect"):
                await fetch(client)


@pytest.mark.parametrize("exempt", ["127.0.0.1", "*"])
async def test_no_proxy_is_heeded(monkeypatch: pytest.MonkeyPatch, exempt: str) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", exempt)
    async with Provider() as provider, connected(provider.url) as client:
        assert isinstance(client, PooledClient)
        assert b"You said" in await fetch(client)


async def test_without_a_proxy_the_client_is_ours() -> None:
    async with connected("http://127.0.0.1:1/v1") as client:
        assert isinstance(client, PooledClient)
        assert client.stats() == {"idle": 0, "busy": 0, "waiting": 0, "opened": 0, "requests": 0, "stale": 0}
