"""What clients that send their requests by drops can keep open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.requests import chat_body

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # a process starts, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
requests: {{head_timeout: 2s, body_timeout: 20s, upload_timeout: 6s, body_rate: 1000, body_grace: 2s}}
"""
MANY = 500
DROP_S = 0.7
"""No divisor of the settings: what arrives while the gateway closes would reset the connection, answer and all."""
PATIENCE_S = 30.0
"""Far more than the settings above allow; less than what a gateway that waits would take."""
KINDS = {
    "/v1/chat/completions": "application/json",
    "/v1/messages/count_tokens": "application/json",
    "/v1/batches": "application/json",
    "/v1/messages/batches": "application/json",
    "/v1/files": "multipart/form-data; boundary=x",
}
CHUNK = b"1\r\n \r\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path_factory.mktemp("slow") / "home", CONFIG.format(port=port), {"one": ""})
    with process:
        yield process


@pytest.fixture
async def key(gateway: GatewayProcess) -> str:
    return await gateway.key("one")


@pytest.fixture
async def http(gateway: GatewayProcess, key: str) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=PATIENCE_S) as client:
        yield client


def head(path: str, key: str, framing: str) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "host: h",
        f"authorization: Bearer {key}",
        f"content-type: {KINDS[path]}",
        framing,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def dripped(gateway: GatewayProcess, start: bytes, drop: bytes, every_s: float = DROP_S) -> bytes:
    """What the gateway has answered until it closed a connection on which `start` comes, then a drop now and then.

    Raises TimeoutError when it does not close it.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    heard = asyncio.create_task(reader.read())
    try:
        async with asyncio.timeout(PATIENCE_S):
            writer.write(start)
            while not (await asyncio.wait([heard], timeout=every_s))[0]:
                writer.write(drop)
            return heard.result()
    except ConnectionResetError:
        return b""
    finally:
        heard.cancel()
        writer.close()


async def test_none_of_many_slow_uploads_is_waited_for(
    gateway: GatewayProcess, http: httpx.AsyncClient, key: str
) -> None:
    starts = [head(path, key, f"content-length: {2**16}") for path in KINDS] * (MANY // len(KINDS))
    slow = asyncio.gather(*(dripped(gateway, start, b" ") for start in starts))
    assert (await http.get("/health")).status_code == 200
    told = [heard for heard in await slow if heard]  # a drop that comes while it closes resets, answer and all
    assert len(told) > MANY / 2
    for heard in told:
        assert heard.startswith(b"HTTP/1.1 408 "), heard
        assert b"connection: close" in heard
        assert b"did not arrive in time" in heard


@pytest.mark.parametrize("path", KINDS)
async def test_chunks_of_a_byte_are_not_waited_for(gateway: GatewayProcess, key: str, path: str) -> None:
    heard = await dripped(gateway, head(path, key, "transfer-encoding: chunked"), CHUNK)
    assert heard.startswith(b"HTTP/1.1 408 ")


async def test_an_upload_that_keeps_the_least_rate_has_an_end_all_the_same(gateway: GatewayProcess, key: str) -> None:
    start = head("/v1/files", key, "content-length: 100000000")
    part = b'--x\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n'
    heard = await dripped(gateway, start + part, b" " * 2000, every_s=0.5)
    assert heard.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("whole", [b"GET /health HTTP/1.1\r\nhost: h\r\n\r\n", b""])
async def test_a_head_that_comes_by_drops_is_not_waited_for(gateway: GatewayProcess, whole: bytes) -> None:
    begun = whole + b"GET /health HTTP/1.1\r\nhost: h\r\nx-slow: "
    heard = await dripped(gateway, begun, b"a")
    assert heard.count(b"HTTP/1.1 ") == 1 + bool(whole)
    assert b"HTTP/1.1 408 " in heard
    assert b"connection: close" in heard


async def test_a_connection_that_asks_nothing_is_closed_without_an_answer(gateway: GatewayProcess) -> None:
    assert await dripped(gateway, b"", b"") == b""


async def test_the_body_of_a_refused_request_is_not_waited_for(gateway: GatewayProcess) -> None:
    starts = [head(path, "tg-nobody", "content-length: 100000") for path in KINDS]
    for heard in await asyncio.gather(*(dripped(gateway, start, b" ") for start in starts)):
        assert heard.startswith(b"HTTP/1.1 401 ")
        assert heard.count(b"HTTP/1.1 ") == 1


async def test_a_body_that_pauses_and_then_comes_is_answered(gateway: GatewayProcess, key: str, port: int) -> None:
    body = chat_body(model="small")
    async with Provider(port=port):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(head("/v1/chat/completions", key, f"content-length: {len(body)}") + body[:20])
        await asyncio.sleep(0.5)  # within body_grace
        writer.write(body[20:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.close()
