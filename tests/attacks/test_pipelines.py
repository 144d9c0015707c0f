"""Requests in a pipeline on one connection, which ends while the first of them is being answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.requests import chat_body
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      window_tokens: 8000, price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
"""
NEXT = b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("pipeline") / "home", CONFIG.format(port=port), {"one": ""}) as process:
        yield process


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_stream_with_requests_behind_it_is_no_longer_bought_when_the_connection_ends(
    gateway: GatewayProcess, provider: Provider
) -> None:
    provider.script(Reply(tokens=2_000, drip_s=0.02))
    body = chat_body(model="small", stream=True)
    key = await gateway.key("one")
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(head.encode() + body + NEXT)
    assert await reader.readuntil(b"data: ")
    await closed(writer)
    await until(lambda: provider.last.hung_up, within_s=10)


async def test_answers_to_a_pipeline_that_ends_in_no_request_leave_no_traceback(gateway: GatewayProcess) -> None:
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(NEXT * 2 + b"this is not HTTP\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        await closed(writer)
    assert "Traceback" not in gateway.log
