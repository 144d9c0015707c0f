"""An image's address that points into the operator's network, sent to a backend that litellm reaches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
backends:
  - {{name: gemini, kind: litellm, base_url: "http://127.0.0.1:{port}", model: gemini/gemini-2.5-flash, tier: hosted,
      api_key: env:GEMINI_TEST_KEY, capabilities: [tools, vision], price: {{input: 1, output: 1}}}}
local_model: {{enabled: false}}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    config, environment = CONFIG.format(port=free_port()), {"GEMINI_TEST_KEY": "sk-test"}
    with GatewayProcess(tmp_path_factory.mktemp("addresses") / "home", config, environment=environment) as process:
        yield process


class Inside:
    """A service in the operator's network that nobody outside should reach."""

    def __init__(self) -> None:
        self.calls = 0
        self.port = 0

    def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 1\r\n\r\nx")
        writer.close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/secret.png"


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    service = Inside()
    server = await asyncio.start_server(service.met, "127.0.0.1", 0)
    service.port = server.sockets[0].getsockname()[1]
    async with server:
        yield service


def parts(address: str) -> list[tuple[str, dict[str, Any], str]]:
    text, image = {"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": address}}
    file = {"type": "file", "file": {"file_id": address}}
    block = {"type": "image", "source": {"type": "url", "url": address}}
    item = {"type": "input_image", "image_url": address}
    return [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [text, image]}]}, "image_url"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [text, file]}]}, "file_id"),
        ("/v1/messages", {"messages": [{"role": "user", "content": [text, block]}], "max_tokens": 9}, "image_url"),
        ("/v1/responses", {"input": [{"role": "user", "content": [item]}]}, "image_url"),
    ]


async def in_force(http: httpx.AsyncClient, address: str) -> bool:
    """Whether the worker has read the policy that permits files' ids."""
    path, body, _ = parts(address)[1]
    return (await http.post(path, json={"model": "gemini", **body})).status_code != 403


async def test_the_worker_fetches_no_address_that_a_client_names(gateway: GatewayProcess, inside: Inside) -> None:
    # The policy opens files' ids, so that what refuses is the rule on addresses alone.
    gateway.write_policy("search", "cache: {enabled: false}\ndata: {forward: [files]}\n")
    headers = {"x-api-key": await gateway.key("search")}
    async with httpx.AsyncClient(base_url=gateway.base, timeout=60, headers=headers) as http:
        await until(partial(in_force, http, inside.address))
        for path, body, field in parts(inside.address):
            answer = await http.post(path, json={"model": "gemini", **body})
            assert answer.status_code == 400, answer.text
            error = answer.json()["error"]
            assert field in error["message"]
            assert "data: URL" in error["message"]
            assert "sk-test" not in answer.text
    assert inside.calls == 0
