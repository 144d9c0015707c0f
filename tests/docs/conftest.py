"""The gateway of the reference: its gateway.yaml, the documents' policies, scripted providers at its addresses."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from loadtests.ports import free_port
from tests.docs.markdown import EXECUTED, REFERENCE, fences, yaml_block
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider


@pytest.fixture(autouse=True)
def no_blocking_calls() -> None:
    """A command may block its own loop: nobody else is on it."""


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("small", "large", "claude", "embedder")}


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    """The URL of a webhook receiver that accepts everything."""

    class Accept(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Accept)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/alerts"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def environment(receiver: str) -> dict[str, str]:
    """What the documents' files refer to."""
    return {"SMALL_KEY": "sk-small", "ANTHROPIC_API_KEY": "sk-ant", "SEARCH_ALERT_URL": receiver}


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int], environment: dict[str, str]
) -> Iterator[GatewayProcess]:
    config = yaml_block(REFERENCE / "gateway-yaml.md", "gateway.yaml")
    for told, name in (("http://127.0.0.1:9001", "small"), ("http://127.0.0.1:9002", "large"),
                       ("https://api.anthropic.com", "claude"), ("http://127.0.0.1:9003", "embedder")):  # fmt: skip
        assert told in config
        config = config.replace(told, f"http://127.0.0.1:{ports[name]}")
    home: Path = tmp_path_factory.mktemp("documents") / "home"
    process = GatewayProcess(home, config + "admin_api: true\n", environment=environment)
    for page in (REFERENCE / "policy-yaml.md", *EXECUTED):
        for fence in fences(page, "yaml"):
            name = re.match(r"# policies/([\w-]+\.yaml)\n", fence.text)
            if name is not None and not (process.folder / name[1]).exists():
                (process.folder / name[1]).write_text(fence.text)
    with process:
        yield process


@pytest.fixture
async def embedder(ports: dict[str, int]) -> AsyncIterator[Provider]:
    async with Provider(port=ports["embedder"], speaks=("/v1/embeddings",)) as provider:
        yield provider


@pytest.fixture
async def small(ports: dict[str, int]) -> AsyncIterator[Provider]:
    """What answers easy questions, for one test."""
    async with Provider(port=ports["small"]) as provider:
        yield provider
