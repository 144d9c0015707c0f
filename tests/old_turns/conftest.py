"""A pipeline in front of two scripted providers: one serves the sessions, the cheaper one writes notes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest_asyncio

from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.domain.backend import PriceEntry
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.old_turns.old_turns import SummarizedTurns, conversation_with_opening
from gateway.routing.router import Router
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, backend, catalogue, grader, open_gateway, record_of, tenant
from tests.fakes.provider import Provider, Reply
from tests.support.pieces import with_ending
from tests.support.waiting import until

NOTES = "The files yard/file0.txt to yard/file14.txt list crates by hall.\nNo file has a total."
PRICE = PriceEntry(input=Decimal(3), output=Decimal(15), cached_input=Decimal("0.3"), cache_write_5m=Decimal("3.75"))
CHEAP = PriceEntry(input=Decimal("0.1"), output=Decimal("0.4"))


@dataclass
class Noting:
    gateway: InProcessGateway
    claude: Provider
    cheap: Provider
    turns: SummarizedTurns
    state: State
    switched_off: set[str]

    async def ask(self, who: Tenant, request: CompletionRequest) -> dict[str, Any]:
        """The body that the provider got for `request`."""
        self.gateway.record = record = record_of(request, who)
        record.session = request.controls.session
        ends = asyncio.get_running_loop().time() + 30.0
        async with await self.gateway.pipeline.serve(request, who, record, ends) as reply:
            async for _ in with_ending(reply):
                pass
        return sent(self.claude)[-1]

    async def cold(self, request: CompletionRequest, who: Tenant) -> None:
        """Let the provider's cache of the session expire."""
        conversation = conversation_with_opening(request, who.key.lineage)
        cached = self.state.key("cached", "claude", tag=f"old_turns/{conversation.hex()}")
        await until(lambda: self.state.call("GET", cached))
        await self.state.call("DEL", cached)

    async def after_pause(self, who: Tenant, request: CompletionRequest) -> None:
        """Ask, wait until the notes are written, and let the cache expire."""
        await self.ask(who, request)
        await self.counted("written")
        await self.cold(request, who)

    async def counted(self, name: str, count: int = 1) -> None:
        await until(lambda: self.turns.stats()[name] == count)

    def other(self, wait_s: float = 0.2) -> SummarizedTurns:
        """Another worker's part."""
        return noting(self.gateway, self.state, self.switched_off, wait_s)

    def use(self, turns: SummarizedTurns) -> None:
        """Let this worker serve from now on."""
        self.turns, pipeline = turns, self.gateway.pipeline
        pipeline.contexts = contexts = Contexts(Counter(), old_turns=turns)
        pipeline.settlement = replace(pipeline.settlement, contexts=contexts)
        turns.open(pipeline)

    async def kinds(self) -> list[tuple[str, str]]:
        return [(row["kind"], row["outcome"]) for row in await self.gateway.rows()]


def noting(
    gateway: InProcessGateway, state: State, switched_off: set[str], wait_s: float, prices: Any = None
) -> SummarizedTurns:
    return SummarizedTurns(
        state,
        prices or catalogue(),
        lambda _: gateway.record.tenant,
        switched_off=switched_off.__contains__,
        wait_s=wait_s,
    )


def summarizing(key: str = "key_1", **more: Any) -> Tenant:
    context = {"old_turns": "summarize", "old_outputs": "keep", "holdout": 0.0, **more.pop("context", {})}
    return tenant(key, context=context, cache={"enabled": False}, **more)


def sent(provider: Provider) -> list[dict[str, Any]]:
    return [orjson.loads(each.body) for each in provider.exchanges]


async def opened(
    state: State, database: Database, folder: Path, wait_s: float, *, kind: str = "anthropic", region: str = "us"
) -> AsyncIterator[Noting]:
    model = "claude-sonnet-4-5" if kind == "anthropic" else "gpt-5.2"
    async with (
        Provider(default=Reply(text="yes")) as claude,
        Provider(default=Reply(text=NOTES)) as cheap,
        open_gateway(
            state,
            database,
            folder,
            more=lambda _: (
                backend(
                    claude, "claude", kind=kind, model=model, tier="hosted", price=PRICE, prompt_cache=True,
                    window_tokens=200_000, capabilities=frozenset({"tools", "reasoning"}), region="eu",
                    location="hosted",
                ),
                backend(cheap, "cheap", tier="hosted", price=CHEAP, window_tokens=200_000, region=region,
                        location="hosted"),
            ),
        ) as gateway,
    ):  # fmt: skip
        off = set[str]()
        turns = noting(gateway, state, off, wait_s)
        found = Noting(gateway, claude, cheap, turns, state, off)
        gateway.pipeline.router = Router(grader, catalogue(), gateway.fleet, gateway.fleet.backends)
        found.use(turns)
        yield found
        await turns.aclose()


@pytest_asyncio.fixture
async def noted(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Noting]:
    """Sessions pause at once. Anthropic's API serves them."""
    async for each in opened(state, database, tmp_path, 0.2):
        yield each


@pytest_asyncio.fixture
async def openai(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Noting]:
    """Sessions pause at once. OpenAI's API serves them."""
    async for each in opened(state, database, tmp_path, 0.2, kind="openai"):
        yield each


@pytest_asyncio.fixture
async def soon(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Noting]:
    """Sessions pause after two seconds, which is time for what comes first on a busy machine."""
    async for each in opened(state, database, tmp_path, 2.0):
        yield each


@pytest_asyncio.fixture
async def patient(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Noting]:
    """Sessions never pause within the test."""
    async for each in opened(state, database, tmp_path, 3600.0):
        yield each
