"""A pipeline that keeps prompts alive, in front of a scripted provider with Anthropic's API."""

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
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Tenant
from gateway.errors import ExpiredKey
from gateway.keep_alive.keep_alive import MOST_WAITING, KeepAlives
from gateway.routing.router import Router
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, backend, catalogue, grader, open_gateway, record_of, tenant
from tests.fakes.provider import Provider, Reply
from tests.support.pieces import with_ending
from tests.support.requests import request_in, user
from tests.support.waiting import until

WRITTEN, READ = Reply(text="yes", cache_write_tokens=20_000), Reply(text="ok", cached_tokens=20_000)
PROMPT = "word " * 8000
TOOL = {"name": "read", "input_schema": {"type": "object"}}
PRICE = PriceEntry(input=Decimal(3), output=Decimal(15), cached_input=Decimal("0.3"), cache_write_5m=Decimal("3.75"))


@dataclass
class Kept:
    gateway: InProcessGateway
    claude: Provider
    keep: KeepAlives
    state: State
    revoked: set[str]

    async def ask(self, who: Tenant, *more: dict[str, Any], **fields: Any) -> None:
        request = asked(*more, **fields)
        self.gateway.record = record = record_of(request, who)
        record.session = request.controls.session
        ends = asyncio.get_running_loop().time() + 30.0
        async with await self.gateway.pipeline.serve(request, who, record, ends) as reply:
            async for _ in with_ending(reply):
                pass

    async def counted(self, name: str) -> None:
        await until(lambda: self.keep.stats()[name])

    async def noted(self, session: bytes) -> None:
        """Wait until the state server knows the session's last request."""
        await until(lambda: self.state.call("GET", self.state.key("last", tag=f"keep_alive/{session.hex()}")))

    async def kinds(self) -> list[tuple[str, str]]:
        return [(row["kind"], row["outcome"]) for row in await self.gateway.rows()]


def asked(*more: dict[str, Any], session: str = "s1", untouched: bool = False, **fields: Any) -> CompletionRequest:
    controls = Controls(session=session, untouched=untouched)
    given = {"messages": [user(PROMPT), *more], "tools": [TOOL], "stream": False, **fields}
    return request_in("anthropic_messages", model="claude", controls=controls, **given)


def keeping(**more: Any) -> Tenant:
    context = {"keep_alive": True, "holdout": 0.0, **more.pop("context", {})}
    return tenant(context=context, cache={"enabled": False}, **more)


def sent(claude: Provider) -> list[dict[str, Any]]:
    return [orjson.loads(each.body) for each in claude.exchanges]


async def kept_gateway(
    state: State, database: Database, folder: Path, idle_s: float, *, leaving: bool = False, most: int = MOST_WAITING
) -> AsyncIterator[Kept]:
    revoked = set[str]()
    async with (
        Provider(default=WRITTEN) as claude,
        open_gateway(
            state,
            database,
            folder,
            more=lambda _: (
                backend(
                    claude, "claude", kind="anthropic", model="claude-sonnet-4-5", tier="hosted", price=PRICE,
                    prompt_cache=True, window_tokens=200_000, capabilities=frozenset({"tools"}),
                ),
            ),
        ) as gateway,
    ):  # fmt: skip

        def of_key(lineage: str) -> Tenant:
            if lineage in revoked:
                raise ExpiredKey("revoked")
            return gateway.record.tenant

        prices = catalogue()
        keep = KeepAlives(state, prices, of_key, leaving=lambda: leaving, idle_s=idle_s, most=most)
        contexts = Contexts(Counter(), keep_alive=keep)
        pipeline = gateway.pipeline
        pipeline.contexts = contexts
        pipeline.settlement = replace(pipeline.settlement, contexts=contexts)
        pipeline.router = Router(grader, prices, gateway.fleet, gateway.fleet.backends)
        keep.open(pipeline)
        yield Kept(gateway, claude, keep, state, revoked)
        await keep.aclose()
        contexts.close()


@pytest_asyncio.fixture
async def kept(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Kept]:
    """Sessions are idle at once."""
    async for each in kept_gateway(state, database, tmp_path, 0.3):
        yield each


@pytest_asyncio.fixture
async def soon(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Kept]:
    """Sessions are idle after two seconds, which is time for what comes first on a busy machine."""
    async for each in kept_gateway(state, database, tmp_path, 2.0):
        yield each


@pytest_asyncio.fixture
async def patient(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Kept]:
    """Sessions are never idle within the test."""
    async for each in kept_gateway(state, database, tmp_path, 3600.0):
        yield each


@pytest_asyncio.fixture
async def two(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Kept]:
    """Sessions are never idle, and at most two of them wait."""
    async for each in kept_gateway(state, database, tmp_path, 3600.0, most=2):
        yield each


@pytest_asyncio.fixture
async def ending(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Kept]:
    """The worker ends."""
    async for each in kept_gateway(state, database, tmp_path, 0.3, leaving=True):
        yield each
