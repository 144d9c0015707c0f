"""A plain answer whose worker is killed is billed by time, as the one whose client leaves is."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.money.metered import Metered, Script
from tests.support.gateway import usage_total
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
backends:
  - {{name: plain, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: plain, tier: large,
      window_tokens: 3000, price: {{input: 1, output: 10}}}}
local_model: {{enabled: false}}
"""


def opened_calls(gateway: GatewayProcess) -> int:
    """Calls in the journal that have begun."""
    files = (path for path in (gateway.home / "data" / "journal").rglob("*") if path.is_file())
    return sum(path.read_bytes().count(b'"open":') for path in files)


@pytest.mark.parametrize(("fields", "most"), [({"max_tokens": 50}, 50), ({"max_tokens": 50, "n": 3}, 150), ({}, 3000)])
async def test_a_plain_answer_whose_worker_is_killed_is_billed_for_no_more_than_it_could_have_been(
    tmp_path: Path, fields: dict[str, Any], most: int
) -> None:
    port = free_port()
    policies = {"killed": "cache: {enabled: false}\nbudget: {limit_usd: 5, window: month}\n"}
    gateway = GatewayProcess(tmp_path / "home", CONFIG.format(port=port), policies)
    await asyncio.to_thread(gateway.start)
    try:
        async with Metered(port) as provider:
            provider.script = Script(tokens=2000, pace_s=0.05)
            headers = {"authorization": f"Bearer {await gateway.key('killed')}"}
            body = {"model": "plain", "messages": [{"role": "user", "content": "count"}]}
            async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30) as http:
                assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
                provider.script.pace_s = 60
                opened = opened_calls(gateway)
                asking = asyncio.ensure_future(http.post("/v1/chat/completions", json={**body, **fields}))
                await until(lambda: opened_calls(gateway) > opened)
                await asyncio.sleep(1.5)  # at the pace of the first answer, time for more than the most
                os.kill(gateway.facts["workers"][0], signal.SIGKILL)
                with pytest.raises(httpx.HTTPError):
                    await asking
        total = await usage_total(gateway, "killed", attempts=2)
        assert total["interrupted"] == 1
        assert most * 0.9 <= total["output_tokens"] - 2000 <= most
    finally:
        await asyncio.to_thread(gateway.stop)
