"""A real nginx, with the guide's example, before a gateway: streams arrive as they are written, sockets open."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import orjson
import pytest
from websockets.asyncio.client import connect

from gateway.batches.files import MAX_BYTES
from loadtests.nginx import NotHere, find
from loadtests.ports import free_port
from tests.deploy.queries import DEPLOY
from tests.docs.markdown import fences
from tests.e2e.conftest import ports  # noqa: F401 - a fixture
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(120)]

AROUND = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {above}
    server {{
        listen 127.0.0.1:{port};
        {inside}
    }}
}}
"""
CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{small}/v1", model: scripted-small, strength: small,
      context_window: 8000, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
POLICIES = {"plain": "cache: {enabled: false}\n"}
MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return find(install=False)
    except NotHere:
        raise AssertionError("apt-get install nginx") from None


@pytest.fixture
def gateway(tmp_path: Path, ports: dict[str, int]) -> Iterator[GatewayProcess]:  # noqa: F811
    with GatewayProcess(tmp_path / "home", CONFIG.format(**ports), POLICIES) as process:
        yield process


@pytest.fixture
async def small(ports: dict[str, int]) -> AsyncIterator[Provider]:  # noqa: F811
    async with Provider(port=ports["small"]) as provider:
        yield provider


def example() -> tuple[str, str]:
    """What stands above the server in the guide's example, and what stands in it."""
    (text,) = [fence.text for fence in fences(DEPLOY / "README.md", "nginx")]
    above, location, inside = text.partition("location / {")
    return above, location + inside


@pytest.fixture
def nginx(tmp_path: Path, gateway: GatewayProcess, program: Path) -> Iterator[str]:
    """Its host and port."""
    above, inside = example()
    assert "http://127.0.0.1:8080;" in inside
    port = free_port()
    inside = inside.replace("http://127.0.0.1:8080;", f"{gateway.base};")
    folder = tmp_path / "nginx"
    folder.mkdir()
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, port=port, above=above, inside=inside))
    process = subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.PIPE)
    try:
        patience = time.monotonic() + 15
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < patience
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=10)


async def test_the_events_of_a_stream_pass_one_by_one(nginx: str, gateway: GatewayProcess, small: Provider) -> None:
    small.script(Reply(tokens=4, drip_s=0.5))
    headers = {"authorization": f"Bearer {await gateway.key('plain')}"}
    body = {"model": "small", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    async with (
        httpx.AsyncClient(headers=headers, timeout=30) as http,
        http.stream("POST", f"http://{nginx}/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status_code == 200
        at = [time.monotonic() async for line in answer.aiter_lines() if line.startswith("data:")]
    assert at[-1] - at[0] > 1, "the whole stream arrived at once"


async def test_a_socket_opens_and_answers(nginx: str, gateway: GatewayProcess, small: Provider) -> None:
    headers = {"authorization": f"Bearer {await gateway.key('plain')}"}
    async with connect(f"ws://{nginx}/v1/responses", additional_headers=headers, proxy=None) as client:
        for turn in ("one", "two"):
            await client.send(orjson.dumps({"type": "response.create", "model": "small", "input": turn}).decode())
            types: list[str] = []
            while not types or types[-1] not in ("response.completed", "error"):
                types.append(orjson.loads(await asyncio.wait_for(client.recv(), 30))["type"])
            assert types[-1] == "response.completed"


async def test_a_file_of_the_largest_size_passes(nginx: str, gateway: GatewayProcess) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield opening
        for _ in range(MAX_BYTES // len(line)):
            yield line
        yield closing

    line = orjson.dumps({"custom_id": "c" * (MEBIBYTE - 16)}) + b"\n"
    opening = (
        b'--B\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="lines.jsonl"\r\n\r\n'
    )
    closing = b"\r\n--B--\r\n"
    headers = {
        "authorization": f"Bearer {await gateway.key('plain')}",
        "content-type": "multipart/form-data; boundary=B",
        "content-length": str(len(opening) + MAX_BYTES // len(line) * len(line) + len(closing)),
    }
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        answer = await http.post(f"http://{nginx}/v1/files", content=body())
    assert answer.status_code == 200, answer.text
    assert answer.json()["bytes"] == MAX_BYTES // len(line) * len(line)
