"""Every answered token is on the ledger exactly once, and a hard budget is not overrun."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from loadtests.ports import free_port
from tests.e2e.conftest import CONFIG, POLICIES, Providers, client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.gateway import usage_total
from tests.support.naming import unique
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy


def ask(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "large", "messages": [{"role": "user", "content": text}], **more}


async def test_the_ledger_equals_what_the_provider_sent(gateway: GatewayProcess, providers: Providers) -> None:
    team = unique("counted")
    sdk = client(gateway, await gateway.key(team))
    providers.large.script(*(Reply(tokens=7 + n, cached_tokens=n % 3) for n in range(12)))

    async def one(number: int) -> None:
        if number % 2:
            await sdk.chat.completions.create(**ask(f"question {number}"))
        else:
            async for _ in await sdk.chat.completions.create(**ask(f"question {number}"), stream=True):
                pass

    await asyncio.gather(*(one(number) for number in range(12)))
    total = await usage_total(gateway, team, attempts=12)
    sent = [exchange.usage for exchange in providers.large.exchanges if exchange.usage]
    assert total["attempts"] == len(sent) == 12
    assert total["output_tokens"] == sum(usage.output_tokens for usage in sent)
    assert total["input_tokens"] == sum(usage.input_tokens for usage in sent)
    expected = sum(
        2_500_000 * u.input_tokens + 2_500_000 * u.cached_tokens + 10_000_000 * u.output_tokens for u in sent
    )
    assert round(float(total["cost_usd"]) * 1e12) == expected


async def test_a_hung_up_stream_cancels_the_backend_and_bills_what_came(
    gateway: GatewayProcess, providers: Providers
) -> None:
    team = unique("hangers")
    sdk = client(gateway, await gateway.key(team))
    providers.large.script(Reply(tokens=400, drip_s=0.02))
    stream = await sdk.chat.completions.create(**ask("a long story"), stream=True)
    seen = 0
    async for chunk in stream:
        seen += bool(chunk.choices and chunk.choices[0].delta.content)
        if seen == 10:
            break
    await stream.close()
    await until(lambda: providers.large.last.hung_up)
    total = await usage_total(gateway, team, attempts=1)
    assert total["interrupted"] == 1
    assert 10 <= total["output_tokens"] <= providers.large.last.tokens_sent
    assert providers.large.last.chunks_sent < 400


async def test_hanging_up_before_the_first_byte_cancels_the_backend(
    gateway: GatewayProcess, providers: Providers
) -> None:
    team = unique("early")
    key = await gateway.key(team)
    providers.large.script(Reply(delay_s=60))
    async with httpx.AsyncClient(timeout=30, base_url=gateway.base, headers={"authorization": f"Bearer {key}"}) as http:
        asking = asyncio.ensure_future(http.post("/v1/chat/completions", json=ask("slow")))
        await until(lambda: providers.large.exchanges)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await until(lambda: providers.large.last.hung_up)
    assert (await usage_total(gateway, team, attempts=1))["attempts"] == 1


async def test_requests_per_minute_are_limited_with_headers_that_say_when(
    gateway: GatewayProcess, providers: Providers, run: int
) -> None:
    sdk = client(gateway, await gateway.key(f"slow-{run}"))
    remaining = []
    for number in range(3):
        raw = await sdk.chat.completions.with_raw_response.create(**ask(f"n {number}"))
        assert raw.headers["x-ratelimit-limit-requests"] == "3"
        remaining.append(int(raw.headers["x-ratelimit-remaining-requests"]))
    assert remaining == sorted(remaining, reverse=True)
    with pytest.raises(openai.RateLimitError) as caught:
        await sdk.chat.completions.create(**ask("one too many"))
    assert caught.value.code == "rate_limit_exceeded"
    assert int(caught.value.response.headers["retry-after"]) >= 1


async def test_a_hard_budget_is_not_overrun_by_concurrency(
    gateway: GatewayProcess, providers: Providers, run: int
) -> None:
    """0.0002 USD is twenty output tokens of the large backend: each call costs at least four, and about 13 are held."""
    sdk = client(gateway, await gateway.key(f"poor-{run}"))

    async def one(number: int) -> str:
        try:
            await sdk.chat.completions.create(**ask(f"n {number}", max_tokens=4))
        except openai.RateLimitError as error:
            return str(error.code)
        return "ok"

    outcomes = await asyncio.gather(*(one(number) for number in range(20)))
    served = outcomes.count("ok")
    assert 1 <= served <= 2
    assert set(outcomes) == {"ok", "insufficient_quota"}
    total = await usage_total(gateway, f"poor-{run}", attempts=served)
    assert float(total["cost_usd"]) <= 0.0002


async def test_nothing_is_lost_or_billed_twice_by_kill_9(tmp_path: Path, ports: dict[str, int]) -> None:
    """Streams in flight when everything is killed are interrupted on the ledger; the answered ones are there once."""
    own = {name: free_port() for name in ports}
    gateway = GatewayProcess(tmp_path / "home", CONFIG.format(**own), POLICIES, {"SMALL_KEY": "k"})
    await asyncio.to_thread(gateway.start)
    try:
        async with Provider(port=own["large"]) as provider:
            sdk = client(gateway, await gateway.key("crash"))
            for number in range(5):
                await sdk.chat.completions.create(**ask(f"whole {number}"))
            provider.script(*(Reply(tokens=500, drip_s=0.02) for _ in range(4)))
            streams = [await sdk.chat.completions.create(**ask(f"cut {number}"), stream=True) for number in range(4)]
            readers = [asyncio.get_running_loop().create_task(_read(stream)) for stream in streams]
            await asyncio.sleep(2.5)  # long enough for a progress mark
            await asyncio.to_thread(gateway.kill)
            received = await asyncio.gather(*readers)
            await asyncio.to_thread(gateway.start)
            total = await usage_total(gateway, "crash", attempts=9)
            answered = sum(e.usage.output_tokens for e in provider.exchanges if e.usage and e.whole and e.finished)
            cut = total["output_tokens"] - answered
            assert (total["attempts"], total["interrupted"]) == (9, 4)
            assert 0 < cut <= sum(e.tokens_sent for e in provider.exchanges if not e.finished or e.hung_up)
            assert all(received)
            await sdk.chat.completions.create(**ask("after the crash"))
            assert (await usage_total(gateway, "crash", attempts=10))["attempts"] == 10
    finally:
        await asyncio.to_thread(gateway.stop)


async def _read(stream: Any) -> int:
    """Content chunks received until the connection broke."""
    seen = 0
    try:
        async for chunk in stream:
            seen += bool(chunk.choices and chunk.choices[0].delta.content)
    except (openai.APIError, httpx.HTTPError):
        pass
    return seen
