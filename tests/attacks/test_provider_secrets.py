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

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Raw
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
class House:
    gateway: GatewayProcess
    key: str
    provider: Provider
    http: httpx.AsyncClient
    received: Receiver
    heard: list[str]
    """Everything that a client was sent."""

    async def ask(self, step: Raw, path: str = "chat/completions", **more: object) -> httpx.Response:
        self.provider.default = step
        body = {"model": "small", "messages": [{"role": "user", "content": "hello"}], **more}
        if path == "responses":
            body = {"model": "small", "input": "hello", **more}
        if path == "messages":
            body["max_tokens"] = 9
        headers = {"authorization": f"Bearer {self.key}", "x-thriftgate-cache": "bypass"}
        reply = await self.http.post(f"{self.gateway.base}/v1/{path}", json=body, headers=headers)
        flight = await self.http.get(
            f"{self.gateway.base}/v1/requests/{reply.headers['x-request-id']}", headers=headers
        )
        self.heard += [str(reply.headers.multi_items()), reply.text, flight.text]
        return reply


def answer(status: int, body: object, *headers: str) -> Raw:
    data = orjson.dumps(body)
    head = [f"HTTP/1.1 {status} Said", "content-type: application/json", f"content-length: {len(data)}", *headers]
    return Raw(("\r\n".join(head).encode() + b"\r\n\r\n" + data,))


def stream(*events: bytes) -> Raw:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return Raw((head, *(b"data: " + event + b"\n\n" for event in events)), then="fin")


@pytest.fixture(scope="module")
def received() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int, received: Receiver) -> Iterator[GatewayProcess]:
    environment = {"SMALL_KEY": KEY, "OTEL_EXPORTER_OTLP_ENDPOINT": received.url}
    home = tmp_path_factory.mktemp("secrets") / "home"
    with GatewayProcess(
        home, CONFIG.format(port=port), {"search": "cache: {enabled: false}\n"}, environment
    ) as process:
        yield process


@pytest_asyncio.fixture
async def house(gateway: GatewayProcess, port: int, received: Receiver) -> AsyncIterator[House]:
    key = await gateway.key("search")
    async with Provider(port=port) as provider, httpx.AsyncClient(timeout=30) as http:
        yield House(gateway, key, provider, http, received, [])


def traces_in(text: str) -> list[str]:
    return [trace for trace in TRACES if trace.lower() in text.lower()]


def kept_in(folder: Path) -> dict[str, list[str]]:
    """File → traces that its bytes hold."""
    found = {str(path): traces_in(path.read_bytes().decode("latin-1")) for path in folder.rglob("*") if path.is_file()}
    return {name: traces for name, traces in found.items() if traces}


def whole(**usage: object) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
    tokens = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": tokens, **usage}


async def answers(house: House, words: str) -> None:
    """Whole answers and refusals; neither lets the backend rest."""
    told = (f"openai-version: {words}", f"x-ratelimit-limit-requests: {words}", f"openai-model: {words}")
    assert (await house.ask(answer(200, whole(), *told))).status_code == 200
    error = {"message": words, "type": words, "code": words, "param": words}
    for path in ("chat/completions", "responses", "messages"):
        reply = await house.ask(answer(400, {"error": error}, *told), path)
        assert reply.status_code == 400
        assert "[key]" in reply.text
    await house.ask(answer(422, {"detail": [{"input": words}]}))
    await house.ask(answer(400, {"error": words}))


async def failures(house: House, words: str) -> None:
    error = {"message": words, "type": words, "code": words, "param": words}
    chunk = orjson.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": "hi"}}]})
    for last in (orjson.dumps({"error": error}), orjson.dumps({"error": words}), words.encode()):
        await house.ask(stream(chunk, last), stream=True)
    for status in (200, 500, 503, 429):
        await house.ask(answer(status, {"error": error}, f"x-request-id: {words}"))


async def test_a_provider_that_repeats_its_key_tells_it_to_nobody(house: House) -> None:
    for words in WORDS:
        await answers(house, words)
    for name in (KEY[:30], KEY[8:]):
        assert (await house.ask(answer(200, whole(service_tier=name)))).status_code == 200
        del house.heard[-2]  # the body of a whole answer is the provider's, to the byte
    for words in WORDS:
        await failures(house, words)
    assert any("The stream of small broke" in text and "[key]" in text for text in house.heard)
    assert traces_in("\n".join(house.heard)) == []

    usage_text = house.gateway.run("usage", "--team", "search", "--by", "model", "--json").stdout
    metrics = await house.http.get(house.gateway.base + "/metrics", headers={"authorization": f"Bearer {house.key}"})
    deadline = time.monotonic() + 30
    while not house.received.spans and time.monotonic() < deadline:
        await house.http.get(house.gateway.base + "/health/live")
    house.gateway.stop()  # whatever was waiting is written and sent
    assert traces_in(usage_text + metrics.text + house.gateway.log) == []
    assert house.received.spans
    assert traces_in("".join(map(str, (*house.received.traces, *house.received.metrics)))) == []
    assert kept_in(house.gateway.home / "data") == {}
