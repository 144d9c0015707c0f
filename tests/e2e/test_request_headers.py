"""Each `x-thriftgate-*` header that a request may carry, with the vendor's SDK, and what it changes."""

from __future__ import annotations

from typing import Any

import httpx
import openai as vendor
import pytest
from openai import AsyncOpenAI

from tests.e2e.conftest import Providers, client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Reply
from tests.support.naming import unique
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy


async def ask(openai: AsyncOpenAI, text: str, *, model: str = "small", **headers: str) -> httpx.Headers:
    """The response's headers; `cache_tags="a"` is `x-thriftgate-cache-tags: a`."""
    named = {f"x-thriftgate-{name.replace('_', '-')}": value for name, value in headers.items()}
    messages: list[Any] = [{"role": "user", "content": text}]
    raw = await openai.chat.completions.with_raw_response.create(
        model=model, messages=messages, temperature=0, extra_headers=named
    )
    return raw.headers


async def flight(gateway: GatewayProcess, key: str, headers: httpx.Headers) -> Any:
    async with httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as http:
        return (await http.get(f"{gateway.base}/v1/requests/{headers['x-request-id']}")).json()


async def test_cache_bypass_refresh_and_only(gateway: GatewayProcess, providers: Providers) -> None:
    openai, asked = client(gateway, await gateway.key("cached")), unique("Which header passes the cache by?")
    for wanted, result, calls in [
        ("", "miss", 1), ("", "exact", 1), ("bypass", "bypass", 2), ("refresh", "miss", 3), ("only", "exact", 3),
    ]:  # fmt: skip
        headers = await ask(openai, asked, **({"cache": wanted} if wanted else {}))
        assert (headers["x-thriftgate-cache"], len(providers.small.exchanges)) == (result, calls)
    with pytest.raises(vendor.APIStatusError) as caught:
        await ask(openai, "Which question has nobody asked yet?", cache="only")
    assert caught.value.status_code == 504
    assert len(providers.small.exchanges) == 3


async def test_cache_tags_name_what_a_flush_forgets(gateway: GatewayProcess, providers: Providers) -> None:
    openai = client(gateway, await gateway.key("cached"))
    for tag in ("docs-v1", "docs-v2"):
        await ask(openai, f"What does {tag} say?", cache_tags=f"docs,{tag}")
    gateway.run("cache", "flush", "--team", "cached", "--tag", "docs-v1", "--yes")

    async def forgotten() -> bool:
        try:
            await ask(openai, "What does docs-v1 say?", cache="only")
        except vendor.APIStatusError as error:
            return error.status_code == 504
        return False

    await until(forgotten)  # the worker hears of it over the log
    assert (await ask(openai, "What does docs-v1 say?"))["x-thriftgate-cache"] == "miss"
    assert (await ask(openai, "What does docs-v2 say?"))["x-thriftgate-cache"] == "exact"


async def test_tier_asks_for_a_backend_of_that_tier(gateway: GatewayProcess, providers: Providers) -> None:
    openai = client(gateway, await gateway.key("plain"))
    for tier, backend in (("small", "small"), ("large", "large"), ("hosted", "claude")):
        headers = await ask(openai, "What is the capital of Chile?", model="auto", tier=tier)
        assert headers["x-thriftgate-backend"] == backend


async def test_deadline_ends_a_request_that_takes_longer(gateway: GatewayProcess, providers: Providers) -> None:
    openai = client(gateway, await gateway.key("plain"))
    providers.small.script(Reply(delay_s=30.0))
    with pytest.raises(vendor.APIStatusError) as caught:
        await ask(openai, "Are you there?", deadline="0.3")
    assert (caught.value.status_code, caught.value.code) == (504, "deadline_exceeded")


async def test_tags_and_session_stand_in_the_record(gateway: GatewayProcess, providers: Providers) -> None:
    key = await gateway.key("plain")
    headers = await ask(client(gateway, key), "Who asks?", tags="feature=answers,env=test", session="s-42")
    found = await flight(gateway, key, headers)
    assert (found["tags"], found["session"]) == ({"feature": "answers", "env": "test"}, "s-42")


async def test_context_untouched_keeps_what_would_be_dropped(gateway: GatewayProcess, providers: Providers) -> None:
    openai = client(gateway, await gateway.key("short"))
    turns: list[Any] = [{"role": "user", "content": f"Remark {n}: " + "all is well here. " * 30} for n in range(8)]
    trimmed = await openai.chat.completions.with_raw_response.create(model="small", messages=turns)
    assert int(trimmed.headers["x-thriftgate-trimmed-tokens"]) > 0
    assert len(providers.small.last.json["messages"]) < 8
    headers = {"x-thriftgate-context": "untouched"}
    raw = await openai.chat.completions.with_raw_response.create(model="small", messages=turns, extra_headers=headers)
    assert "x-thriftgate-trimmed-tokens" not in raw.headers
    assert providers.small.last.json["messages"] == turns


async def test_priority_batch_is_accepted_and_nonsense_is_not(gateway: GatewayProcess, providers: Providers) -> None:
    openai = client(gateway, await gateway.key("plain"))
    assert (await ask(openai, "No hurry.", priority="batch"))["x-thriftgate-backend"] == "small"
    with pytest.raises(vendor.BadRequestError) as caught:
        await ask(openai, "No hurry.", priority="whenever")
    assert caught.value.param == "x-thriftgate-priority"
