"""A provider that writes without end, once: what is learned from it refuses nobody afterwards."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.requests import post_chat

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      window_tokens: 8000, price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
"""
POLICY = "cache: {enabled: false}\nbudget: {limit_usd: 100, window: month, on_exhausted: refuse}\n"


async def test_after_a_runaway_stream_a_short_question_is_answered(tmp_path: Path) -> None:
    port = free_port()
    with GatewayProcess(tmp_path / "home", CONFIG.format(port=port), {"one": POLICY}) as gateway:
        headers = {"authorization": f"Bearer {await gateway.key('one')}"}
        async with (
            Provider(port=port) as provider,
            httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=60) as http,
        ):
            provider.script(Reply(tokens=40_000))
            endless = await post_chat(http, model="small", stream=True)
            assert endless.text.rstrip().endswith("[DONE]")
            for _ in range(3):
                answer = await post_chat(http, model="small")
                assert answer.status_code == 200, answer.text[:300]
