"""Answers of a provider whose values have other types than its dialect: the backend's failure, never the gateway's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from gateway.dialects.anthropic_messages.assembly import MessageAssembly
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Raw
from tests.support.requests import chat_fields

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      dialects: [{dialects}], window_tokens: 8000, price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
"""
CHAT = chat_fields(max_tokens=5)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    config = CONFIG.format(port=port, dialects="openai_chat, openai_completions, openai_responses")
    rules = "cache: {enabled: false}\ndata: {store_prompts: true}\n"
    with GatewayProcess(tmp_path_factory.mktemp("answers") / "home", config, {"one": rules}) as process:
        yield process


@pytest.mark.parametrize(
    ("path", "asked", "said"),
    [
        ("/v1/messages", CHAT, {"choices": [{"index": 0, "message": {"role": "assistant", "content": 7}}]}),
        ("/v1/completions", {"prompt": "a"}, {"choices": [{"text": "a", "logprobs": {"token_logprobs": 7}}]}),
        ("/v1/responses", {"input": "a", "store": True}, {"id": "r", "object": "response", "output": ["a"]}),
    ],
)
async def test_an_answer_with_values_of_wrong_types_is_no_failure_of_the_gateway(
    gateway: GatewayProcess, provider: Provider, path: str, asked: dict[str, Any], said: dict[str, Any]
) -> None:
    body = orjson.dumps(said)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    provider.script(*[Raw((head + body,))] * 5)
    key = await gateway.key("one")
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=30) as http:
        answer = await http.post(gateway.base + path, json={"model": "small", **asked})
    assert answer.status_code in (200, 502, 503), answer.text
    assert "Traceback" not in gateway.log


def test_a_delta_that_is_no_text_is_not_kept_as_one() -> None:
    said = MessageAssembly()
    said.add({"type": "message_start", "message": {"id": "m", "usage": {}}}, 1)
    said.add({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, 1)
    for text in ("a", 7, {}, [1]):
        delta = {"type": "text_delta", "text": text}
        said.add({"type": "content_block_delta", "index": 0, "delta": delta}, 1)
    said.add({"type": "content_block_start", "index": 1, "content_block": "text"}, 1)
    assert (said.text(), said.message()) == ("a", None)
