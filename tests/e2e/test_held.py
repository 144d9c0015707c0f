"""What a running gateway's cache holds: listed, shown, flushed, and called wrong by who got it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Providers
from tests.e2e.gateway_process import GatewayProcess
from tests.support.gateway import eventually

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy


def body(text: str) -> dict[str, Any]:
    return {"model": "large", "messages": [{"role": "user", "content": text}], "temperature": 0}


async def ask(http: httpx.AsyncClient, text: str, **headers: str) -> httpx.Response:
    reply = await http.post("/v1/chat/completions", json=body(text), headers=headers)
    assert reply.status_code == 200
    return reply


async def answered_from_cache(http: httpx.AsyncClient, text: str) -> bool:
    """Without asking a backend."""
    reply = await http.post("/v1/chat/completions", json=body(text), headers={"x-thriftgate-cache": "only"})
    return reply.status_code == 200


async def cache_command(gateway: GatewayProcess, *arguments: str) -> Any:
    return await asyncio.to_thread(gateway.json, "cache", *arguments)


async def test_answers_are_listed_shown_flushed_and_called_wrong(gateway: GatewayProcess, providers: Providers) -> None:
    headers = {"authorization": f"Bearer {await gateway.key('cached')}"}
    flush = ("flush", "--prefix", "held/")
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30) as http:
        await cache_command(gateway, *flush, "--yes")  # what a run before this one left
        for number in range(3):
            await eventually(
                partial(answered_from_cache, http, f"What is held, {number}?"), lambda answered: not answered
            )
        for number in range(3):
            await ask(http, f"What is held, {number}?", **{"x-thriftgate-cache-tags": f"held/{number},all"})
        (row,) = await eventually(
            lambda: cache_command(gateway, "stats", "--team", "cached", "--prefix", "held/"),
            lambda rows: rows and rows[0]["answers"] == 3,
        )
        assert (row["answers"], row["tags"]) == (3, ["all", "held/0", "held/1", "held/2"])
        assert float(row["saves_usd"]) > 0
        (newest, *_) = listed = await cache_command(gateway, "show", "--tag", "all")
        assert len(listed) == 3
        (shown,) = await cache_command(gateway, "show", newest["id"][:10])
        assert shown["answer"]["choices"][0]["message"]["content"]

        again = await ask(http, "What is held, 2?")
        assert again.headers["x-thriftgate-cache"] == "exact"
        said = await http.post(f"/v1/requests/{again.headers['x-request-id']}/feedback", json={"cache": "wrong"})
        assert said.status_code == 201
        assert (await ask(http, "What is held, 2?")).headers["x-thriftgate-cache"] == "miss"

        found = await eventually(lambda: cache_command(gateway, *flush), lambda found: found["answers"] == 2)
        assert found == {"team": None, "answers": 2, "flushed": False}
        assert (await ask(http, "What is held, 1?")).headers["x-thriftgate-cache"] == "exact"
        assert (await cache_command(gateway, *flush, "--yes"))["answers"] == 2
        await eventually(lambda: answered_from_cache(http, "What is held, 1?"), lambda answered: not answered)
        assert (await ask(http, "What is held, 1?")).headers["x-thriftgate-cache"] == "miss"
    refused = await asyncio.to_thread(lambda: gateway.run("cache", "flush", check=False))
    assert (refused.returncode, "--team" in refused.stderr) == (2, True)
