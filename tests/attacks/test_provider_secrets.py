"""A provider that writes the gateway's own key into whatever it says when it refuses, breaks off or answers."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
import orjson
import pytest
import pytest_asyncio

from gateway.domain.request import DialectName
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Raw
from tests.support.requests import post
from tests.telemetry.conftest import Receiver

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # a process starts

KEY = "sk-live-Zt7QxR2mW9bK4vLs/8dHn+1fGq"
MASKED = "sk-live-Zt7Q********************1fGq"
BASIC = base64.b64encode(f"gateway:{KEY}".encode()).decode()
TRACES = (KEY[8:20], KEY[-6:], quote(KEY, safe="")[-8:], BASIC[14:40], KEY.encode().hex()[20:40], "Zt7Q**", "**1fGq")
"""What nobody may find, in any case of its letters."""
WORDS = (
    f"Incorrect API key provided: {KEY}. See https://provider/keys?key={quote(KEY, safe='')}",
    f"Incorrect API key provided: {MASKED}",
    f"bad header: Authorization: Basic {BASIC}, {KEY.encode().hex()}",
    f"the key beginning with {KEY[:12]} and ending in {KEY[-6:]} has no access",
)
CONFIG = """\
trials: {{cache_checks: 0}}
admin_api: true
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: small,
      api_key: env:SMALL_KEY, window_tokens: 128000, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""


@dataclass
class Gateway:
    process: GatewayProcess
    key: str
    provider: Provider
    http: httpx.AsyncClient
    received: Receiver
    heard: list[str]
    """Everything that a client was sent."""

    async def ask(self, step: Raw, dialect: DialectName = "openai_chat", **more: object) -> httpx.Response:
        self.provider.default = step
        headers = {"authorization": f"Bearer {self.key}", "x-thriftgate-cache": "bypass"}
        reply = await post(self.http, dialect, headers=headers, model="small", **more)
        flight = await self.http.get(f"/v1/requests/{reply.headers['x-request-id']}", headers=headers)
        self.heard += [str(reply.headers.multi_items()), reply.text, flight.text]
        return reply


def whole_reply(status: int, body: object, *headers: str) -> Raw:
    data = orjson.dumps(body)
    head = [f"HTTP/1.1 {status} Said", "content-type: application/json", f"content-length: {len(data)}", *headers]
    return Raw(("\r\n".join(head).encode() + b"\r\n\r\n" + data,))


def streamed_reply(*events: bytes) -> Raw:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return Raw((head, *(b"data: " + event + b"\n\n" for event in events)), then="fin")


@pytest.fixture
def received() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def process(tmp_path_factory: pytest.TempPathFactory, port: int, received: Receiver) -> Iterator[GatewayProcess]:
    environment = {"SMALL_KEY": KEY, "OTEL_EXPORTER_OTLP_ENDPOINT": received.url}
    home = tmp_path_factory.mktemp("secrets") / "home"
    with GatewayProcess(
        home, CONFIG.format(port=port), {"search": "cache: {enabled: false}\n"}, environment
    ) as process:
        yield process


@pytest_asyncio.fixture
async def gateway(process: GatewayProcess, port: int, received: Receiver) -> AsyncIterator[Gateway]:
    key = await process.key("search")
    async with Provider(port=port) as provider, httpx.AsyncClient(base_url=process.base, timeout=30) as http:
        yield Gateway(process, key, provider, http, received, [])


def traces_in(text: str) -> list[str]:
    return [trace for trace in TRACES if trace.lower() in text.lower()]


def kept_in(folder: Path) -> dict[str, list[str]]:
    """File → traces that its bytes hold."""
    found = {str(path): traces_in(path.read_bytes().decode("latin-1")) for path in folder.rglob("*") if path.is_file()}
    return {name: traces for name, traces in found.items() if traces}


def completion(**usage: object) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
    tokens = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": tokens, **usage}


async def answers(gateway: Gateway, words: str) -> None:
    """Whole answers and refusals; neither lets the backend rest."""
    headers = (f"openai-version: {words}", f"x-ratelimit-limit-requests: {words}", f"openai-model: {words}")
    assert (await gateway.ask(whole_reply(200, completion(), *headers))).status_code == 200
    error = {"message": words, "type": words, "code": words, "param": words}
    dialects: tuple[DialectName, ...] = ("openai_chat", "openai_responses", "anthropic_messages")
    for dialect in dialects:
        reply = await gateway.ask(whole_reply(400, {"error": error}, *headers), dialect)
        assert reply.status_code == 400
        assert "[key]" in reply.text
    await gateway.ask(whole_reply(422, {"detail": [{"input": words}]}))
    await gateway.ask(whole_reply(400, {"error": words}))


async def failures(gateway: Gateway, words: str) -> None:
    error = {"message": words, "type": words, "code": words, "param": words}
    chunk = orjson.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": "hi"}}]})
    for last in (orjson.dumps({"error": error}), orjson.dumps({"error": words}), words.encode()):
        await gateway.ask(streamed_reply(chunk, last), stream=True)
    for status in (200, 500, 503, 429):
        await gateway.ask(whole_reply(status, {"error": error}, f"x-request-id: {words}"))


async def test_a_provider_that_repeats_its_key_tells_it_to_nobody(gateway: Gateway) -> None:
    for words in WORDS:
        await answers(gateway, words)
    for name in (KEY[:30], KEY[8:]):
        assert (await gateway.ask(whole_reply(200, completion(service_tier=name)))).status_code == 200
        del gateway.heard[-2]  # the body of a whole answer is the provider's, to the byte
    for words in WORDS:
        await failures(gateway, words)
    assert any("The stream of small broke" in text and "[key]" in text for text in gateway.heard)
    assert traces_in("\n".join(gateway.heard)) == []

    usage_text = gateway.process.run("usage", "--team", "search", "--by", "model", "--json").stdout
    metrics = await gateway.http.get(
        gateway.process.base + "/metrics", headers={"authorization": f"Bearer {gateway.key}"}
    )
    deadline = time.monotonic() + 30
    while not gateway.received.spans and time.monotonic() < deadline:
        await gateway.http.get(gateway.process.base + "/health/live")
    gateway.process.stop()  # whatever was waiting is written and sent
    assert traces_in(usage_text + metrics.text + gateway.process.log) == []
    assert gateway.received.spans
    assert traces_in("".join(map(str, (*gateway.received.traces, *gateway.received.metrics)))) == []
    assert kept_in(gateway.process.home / "data") == {}
