"""Streams of several tokens a chunk whose worker is killed before it has seen a whole stream of their backend."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.money.metered import WORD, Metered, Script
from tests.support.gateway import usage_total
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
backends:
  - {{name: streaming, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: streaming, tier: large,
      window_tokens: 64000, price: {{input: 1, output: 10}}}}
local_model: {{enabled: false}}
"""
STREAMS = 12


@pytest.mark.parametrize("per_chunk", [1, 5, 20])
async def test_what_killed_streams_had_delivered_is_booked_and_hardly_more(tmp_path: Path, per_chunk: int) -> None:
    port = free_port()
    policies = {"killed": "cache: {enabled: false}\nbudget: {limit_usd: 5, window: month}\n"}
    gateway = GatewayProcess(tmp_path / "home", CONFIG.format(port=port), policies, workers=3)
    await asyncio.to_thread(gateway.start)
    try:
        async with Metered(port) as provider:
            provider.script = Script(tokens=20_000, per_chunk=per_chunk, pace_s=0.02)
            headers = {"authorization": f"Bearer {await gateway.key('killed')}"}
            body = {"model": "streaming", "stream": True, "messages": [{"role": "user", "content": "count"}]}

            received = bytearray()

            async def ask() -> None:
                async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=60) as http:
                    with pytest.raises(httpx.HTTPError):  # noqa: PT012 - it breaks while it is read
                        async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
                            async for piece in reply.aiter_raw():
                                received.extend(piece)

            asking = [asyncio.ensure_future(ask()) for _ in range(STREAMS)]
            # Marks tell how long events are.
            await until(lambda: provider.output_tokens >= STREAMS * per_chunk * 60)
            for worker in gateway.facts["workers"]:
                os.kill(worker, signal.SIGKILL)
            await asyncio.gather(*asking)
            told = provider.output_tokens
        total = await usage_total(gateway, "killed", attempts=STREAMS)
        assert total["interrupted"] == STREAMS
        heard = received.count(f"{WORD} ".encode())
        assert heard * 0.9 <= total["output_tokens"] <= told * 1.6  # a word is a token here, and 1.25 of the estimate's
    finally:
        await asyncio.to_thread(gateway.stop)
