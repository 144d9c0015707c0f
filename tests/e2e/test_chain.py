"""Gateway behind gateway: ids, sessions, prices and money pass from one real gateway to another, and loops end."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import openai
import orjson
import pytest
from anthropic import AsyncAnthropic

from loadtests.ports import free_port
from tests.e2e.conftest import client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.gateway import eventually

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # two processes start, on a machine that is busy

UPPER = """\
backends:
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{provider}/v1", model: scripted,
      price: {{input: 1, cached_input: 0.5, output: 2}}}}
  - {{name: back, kind: thriftgate, base_url: "http://127.0.0.1:{lower}/v1", api_key: env:LOWER_KEY, model: loop}}
  - {{name: plain-back, kind: openai, base_url: "http://127.0.0.1:{lower}/v1", api_key: env:LOWER_KEY,
      model: plain-loop, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
LOWER = """\
backends:
  - {{name: up, kind: thriftgate, base_url: "http://127.0.0.1:{upper}/v1", api_key: env:UPPER_KEY, model: large,
      price: {{input: 10, output: 20}}}}
  - {{name: cheap, kind: thriftgate, base_url: "http://127.0.0.1:{upper}/v1", api_key: env:UPPER_KEY, model: large,
      price: {{input: 0.01, output: 0.01}}}}
  - {{name: loop, kind: thriftgate, base_url: "http://127.0.0.1:{upper}/v1", api_key: env:UPPER_KEY, model: back}}
  - {{name: plain-loop, kind: openai, base_url: "http://127.0.0.1:{upper}/v1", api_key: env:UPPER_KEY,
      model: plain-back, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
PLAIN = "cache: {enabled: false}\n"
HELLO: list[Any] = [{"role": "user", "content": "Say hello"}]


@dataclass(frozen=True)
class Chain:
    upper: GatewayProcess
    lower: GatewayProcess
    port: int
    """The provider's."""
    keys: dict[str, str]
    """Team of the lower gateway → its key."""


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder, port = tmp_path_factory.mktemp("chain"), free_port()
    places = {"provider": port, "upper": free_port(), "lower": free_port()}
    placeholder = {"LOWER_KEY": "unknown-yet", "UPPER_KEY": "unknown-yet"}
    upper = GatewayProcess(
        folder / "upper", UPPER.format(**places), {"edge": ""}, dict(placeholder), port=places["upper"]
    )
    teams = {"search": PLAIN, "poor": PLAIN + "budget: {limit_usd: 0.01}\n"}
    lower = GatewayProcess(folder / "lower", LOWER.format(**places), teams, dict(placeholder), port=places["lower"])
    lower.environment["UPPER_KEY"] = upper.json("keys", "create", "--team", "edge")["key"]
    keys = {team: lower.json("keys", "create", "--team", team)["key"] for team in teams}
    upper.environment["LOWER_KEY"] = keys["search"]
    with upper, lower:
        yield Chain(upper, lower, port, keys)


@pytest.fixture
async def provider(chain: Chain) -> AsyncIterator[Provider]:
    async with Provider(port=chain.port) as found:
        yield found


def rows(gateway: GatewayProcess) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(gateway.home / "data" / "ledger.sqlite")) as link:
        link.row_factory = sqlite3.Row
        return [dict(row) for row in link.execute("SELECT * FROM ledger ORDER BY rowid")]


async def pair(chain: Chain, known: tuple[int, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row that came to each ledger since there were `known` rows: the lower's, the upper's."""
    found = []
    for gateway, count in zip((chain.lower, chain.upper), known, strict=True):

        def read(gateway: GatewayProcess = gateway) -> list[dict[str, Any]]:
            return rows(gateway)

        every = await eventually(lambda: asyncio.to_thread(read), lambda all_, count=count: len(all_) > count)
        assert len(every) == count + 1
        found.append(every[-1])
    return found[0], found[1]


async def counts(chain: Chain) -> tuple[int, int]:
    return len(await asyncio.to_thread(rows, chain.lower)), len(await asyncio.to_thread(rows, chain.upper))


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_booked_once_at_the_upper_gateways_cost(
    chain: Chain, provider: Provider, dialect: str, stream: bool
) -> None:
    known, key = await counts(chain), chain.keys["search"]
    text = f"Say hello, {dialect} {stream}"
    session = {"x-thriftgate-session": "s-1"}
    messages: list[Any] = [{"role": "user", "content": text}]
    if dialect == "messages":
        async with AsyncAnthropic(base_url=chain.lower.base, api_key=key, max_retries=0) as sdk:
            asked: Any = await sdk.messages.create(
                model="up", max_tokens=50, messages=messages, stream=stream, extra_headers=session
            )
            if stream:
                assert [event async for event in asked]
    else:
        async with client(chain.lower, key) as other:
            if dialect == "chat":
                asked = await other.chat.completions.create(
                    model="up", messages=messages, stream=stream, extra_headers=session
                )
            else:
                asked = await other.responses.create(model="up", input=text, stream=stream, extra_headers=session)
            if stream:
                assert [event async for event in asked]
    lower, upper = await pair(chain, known)
    assert (lower["outcome"], upper["outcome"]) == ("ok", "ok")
    assert lower["cost_pico"] == upper["cost_pico"] > 0
    assert lower["price_source"] == "upstream gateway"
    tags = orjson.loads(upper["tags"])
    assert tags == {"caller_attempt": lower["id"], "caller_team": "search"}
    assert lower["session"] == "s-1"
    assert len(upper["session"]) == 24
    assert "s-1" not in upper["session"]


async def test_an_answer_from_the_upper_gateways_cache_costs_nothing(chain: Chain, provider: Provider) -> None:
    async with client(chain.lower, chain.keys["search"]) as sdk:
        for expected in (1, 0):
            known = await counts(chain)
            await sdk.chat.completions.create(
                model="up", temperature=0, messages=[{"role": "user", "content": "What is the capital of Chile?"}]
            )
            lower, upper = await pair(chain, known)
            assert (lower["cost_pico"] > 0, upper["cost_pico"] > 0) == (bool(expected), bool(expected))


async def test_the_upper_cache_gives_no_answer_to_another_team(chain: Chain, provider: Provider) -> None:
    question: list[Any] = [{"role": "user", "content": "What is the capital of Peru?"}]
    for team in ("search", "poor"):
        async with client(chain.lower, chain.keys[team]) as sdk:
            known = await counts(chain)
            await sdk.chat.completions.create(model="cheap", temperature=0, messages=question, max_tokens=50)
            _, upper = await pair(chain, known)
            assert upper["cache"] == "miss"
    assert len(provider.exchanges) == 2


async def test_a_loop_ends_with_an_error_that_names_it(chain: Chain, provider: Provider) -> None:
    async with client(chain.lower, chain.keys["search"]) as sdk:
        with pytest.raises(openai.APIStatusError) as caught:
            await sdk.chat.completions.create(model="loop", messages=HELLO)
    assert caught.value.status_code == 508
    assert caught.value.code == "loop_detected"
    assert "has passed this gateway before" in caught.value.message
    assert not provider.exchanges


async def test_a_loop_through_backends_of_kind_openai_ends_too(chain: Chain, provider: Provider) -> None:
    async with client(chain.lower, chain.keys["search"]) as sdk:
        known = await counts(chain)
        with pytest.raises(openai.APIStatusError):
            await sdk.chat.completions.create(model="plain-loop", messages=HELLO)
    grown = [now - before for now, before in zip(await counts(chain), known, strict=True)]
    assert max(grown) <= 9, "rows of retries alone; each try goes around once"
    assert not provider.exchanges


async def test_the_upper_gateway_spends_no_more_than_the_lower_budget_has_left(
    chain: Chain, provider: Provider
) -> None:
    async with client(chain.lower, chain.keys["poor"]) as sdk:
        await sdk.chat.completions.create(model="cheap", messages=HELLO, max_tokens=100_000)
    sent = orjson.loads(provider.exchanges[-1].body)
    asked = sent.get("max_completion_tokens") or sent.get("max_tokens")
    assert 1000 < asked <= 5000  # 0.01 USD at the upper gateway's 2 USD per million tokens
