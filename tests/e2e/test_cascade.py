"""A real gateway over a real small model with log-probabilities; what stands behind it when it is weak is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import orjson
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.llama import llama
from tests.fakes.provider import Provider, Reply

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
backends:
  - {{name: small, kind: local, base_url: "http://127.0.0.1:{small}/v1", model: real, tier: small, window_tokens: 1024,
      capabilities: [logprobs], price: {{input: 0.1, output: 0.4}}}}
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{large}/v1", model: scripted-large, tier: large,
      window_tokens: 128000, capabilities: [logprobs], price: {{input: 2.5, output: 10}}}}
local_model: {{enabled: false}}
"""
POLICY = """\
cache: {enabled: false}
models:
  trusting: {candidates: [small, large], reference: large, quality: 0, confidence: 0.01}
  doubting: {candidates: [small, large], reference: large, quality: 0, confidence: 1}
streams: {hold_tokens: 8, hold_for: 60s}
"""
STRONG = "The larger one has the last word."
QUESTION = "Tell me a long story about the river that runs through the city of London."


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    with llama(slots=4, window=1024) as port:
        yield {"small": port, "large": free_port()}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("cascade") / "home"
    with GatewayProcess(home, CONFIG.format(**ports), {"team": POLICY}) as process:
        yield process


@pytest.fixture
async def large(ports: dict[str, int]) -> AsyncIterator[Provider]:
    async with Provider(port=ports["large"], default=Reply(text=STRONG)) as provider:
        yield provider


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {await gateway.key('team')}"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=60) as client:
        yield client


async def ask(http: httpx.AsyncClient, model: str, *, stream: bool = False) -> tuple[bytes, dict[str, Any]]:
    """The answer as it came, and its flight record."""
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64, "stream": stream}
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    record = (await http.get(f"/v1/requests/{answer.headers['x-request-id']}")).json()
    return answer.content, record


def streamed_text(answer: bytes) -> str:
    chunks = [orjson.loads(line[6:]) for line in answer.split(b"\n\n") if line.startswith(b"data: {")]
    assert not any(choice.get("logprobs") for chunk in chunks for choice in chunk["choices"])
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def outcomes(record: dict[str, Any]) -> list[tuple[str, str]]:
    return [(attempt["backend"], attempt["outcome"]) for attempt in record["attempts"]]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_real_model_that_is_trusted_answers_and_tells_how_sure_it_was(
    http: httpx.AsyncClient, large: Provider, stream: bool
) -> None:
    answer, record = await ask(http, "trusting", stream=stream)
    assert outcomes(record) == [("small", "ok")]
    assert 0 < record["attempts"][0]["confidence"] < 1
    assert record["attempts"][0]["output_tokens"] > 0
    assert not large.exchanges
    if stream:
        assert streamed_text(answer)


async def test_a_plain_answer_that_is_doubted_is_replaced(http: httpx.AsyncClient, large: Provider) -> None:
    answer, record = await ask(http, "doubting")
    assert orjson.loads(answer)["choices"][0]["message"]["content"] == STRONG
    assert outcomes(record) == [("small", "escalated"), ("large", "ok")]
    assert 0 < record["attempts"][0]["confidence"] < 1
    assert record["escalated"]


async def test_under_load_streams_that_are_doubted_are_replaced_before_their_first_byte(
    http: httpx.AsyncClient, large: Provider, gateway: GatewayProcess
) -> None:
    found = await asyncio.gather(*(ask(http, "doubting", stream=True) for _ in range(8)))
    assert [streamed_text(answer) for answer, _ in found] == [STRONG] * 8
    for _, record in found:
        assert outcomes(record) == [("small", "escalated"), ("large", "ok")]
        weak, strong = record["attempts"]
        assert weak["error"] == "unsure"
        assert weak["estimated"]
        assert 8 <= weak["output_tokens"] < 64
        assert float(record["cost_usd"]) == pytest.approx(float(weak["cost_usd"]) + float(strong["cost_usd"]))
    assert len(large.exchanges) == 8
