"""Tenants, records and backends, a ledger to rebuild from, and servers to harm, for the admission room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway.admission.budgets import Budgets
from gateway.admission.no_hold import RequestHold
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.policy import Policy
from gateway.domain.protocols import BudgetChecker, SpentReader, Subject
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Key, Tenant
from gateway.state.leases.leases import Leases
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from tests.support.waiting import until

ZONES = [ZoneInfo(name) for name in ("UTC", "Asia/Tokyo")]
"""Policies are loaded in a thread, which reads the zones' files; here they are read now and kept."""

PRICES = {
    "small": Price.per_million(Decimal("1"), Decimal("10")),
    "large": Price.per_million(Decimal("10"), Decimal("100")),
    "classes": Price(
        *(1000, 10_000),
        cache_write_5m=1250,
        cache_write_1h=2000,
        reasoning=30_000,
        beyond=(5000, Price(9000, 90_000)),
    ),
    "free": Price.per_million(Decimal(0), Decimal(0)),
}


class Prices:
    """A price list; `house` is not on it."""

    def price(self, backend: Backend) -> Price | None:
        return PRICES.get(backend.name)


@contextmanager
def released(hold: RequestHold) -> Iterator[RequestHold]:
    """Released in the end, as the pipeline does it."""
    try:
        yield hold
    finally:
        hold.release()


def backend(name: str = "small", **more: Any) -> Backend:
    return Backend(name=name, kind="openai", base_url="http://127.0.0.1:1/v1", model="plain", **more)


def tenant(key: str = "k1", **policy: Any) -> Tenant:
    return Tenant(Key(key, "search"), Policy(team="search", **policy))


JANUARY = 1_767_225_600.0
BEGINNING = JANUARY + 3600
"""When clocks begin, and requests."""


def record(who: Tenant, *, stream: bool = False, at: float = BEGINNING) -> Record:
    return Record("req_1", who, "auto", "openai_chat", stream, started_at=at)


class Ledger:
    """Implements `Spending`: what was journalled."""

    def __init__(self) -> None:
        self.pico = self.tokens = 0
        self.users: dict[str, SpentReader] = {}
        self.payers: list[BudgetChecker] = []
        self.together: list[int] = []
        """End users asked for at a time."""
        self.asked = 0
        self.broken = False

    async def spent(self, payer: BudgetChecker, since: float, until: float) -> SpentReader:
        self.asked += 1
        self.payers.append(payer)
        if self.broken:
            raise OSError("no ledger")
        return SpentReader(self.pico, self.tokens)

    async def spent_by_each(
        self, by: Subject, team: str, since: float, until: float, names: Collection[str]
    ) -> Mapping[str, SpentReader]:
        self.asked += 1
        self.together.append(len(names))
        await asyncio.sleep(0.02)
        return {name: spent for name, spent in self.users.items() if name in names}


class Clock:
    def __init__(self, now: float = BEGINNING) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def budgets_on(state: State, ledger: Ledger, **more: Any) -> AsyncIterator[Budgets]:
    leases = Leases(state, period_s=0.05, ttl_s=more.pop("ttl_s", 15.0))
    budgets = Budgets(state, Prices(), ledger, leases=leases, clock=more.pop("clock", Clock()), **more)
    await budgets.open()
    try:
        yield budgets
    finally:
        await budgets.aclose()


def asking(max_output_tokens: int | None = None, *, stream: bool = False, parallel: int = 1) -> CompletionRequest:
    return CompletionRequest(
        id="req_1",
        dialect="openai_chat",
        raw=b"{}",
        body={},
        model="auto",
        turns=[],
        stream=stream,
        max_output_tokens=max_output_tokens,
        temperature=None,
        needs=frozenset(),
        parallel=parallel,
    )


def close(seen: Record, hold: RequestHold, target: Backend, usage: Usage) -> int:
    """What the pipeline does with a whole answer; pico-dollars."""
    attempt = seen.attempt(target)
    attempt.input_tokens, attempt.usage, attempt.outcome = usage.input_tokens, usage, "ok"
    attempt.cost_pico = price(target).cost(usage)
    cost = sum(one.cost_pico or 0 for one in seen.attempts)
    hold.settle(cost)
    return cost


def price(target: Backend) -> Price:
    return PRICES[target.name]


def broke(limit: str = "1", **more: Any) -> Tenant:
    return tenant(budget={"limit_usd": limit, **more})


async def spend(budgets: Budgets, who: Tenant, nano: int, at: float = BEGINNING) -> None:
    with released(budgets.hold(who, record(who, at=at), asking(10))) as hold:
        await hold.extend(backend(), 10)
        hold.settle(nano * 1000)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(tmp_path)
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def states(server: EmbeddedServer) -> AsyncIterator[tuple[State, State]]:
    one, two = State(server.url), State(server.url)
    await one.open()
    await two.open()
    yield one, two
    await one.aclose()
    await two.aclose()


async def up_again(*some: State) -> None:
    await until(lambda: all(state.healthy for state in some))


async def until_settled(state: State, least: int, most: int | None = None) -> None:
    """Wait until so many nano-dollars are settled."""

    async def settled() -> bool:
        return least <= (await counters(state))[0] <= (most or least)

    await until(settled)


async def counters(state: State) -> tuple[int, int]:
    """Settled and leased nano-dollars of the one sum in the namespace."""
    keys = await state.call("KEYS", state.key("lease", "budget", "*", tag="search"))
    settled, workers = await state.call("HMGET", keys[0], "s", "w")
    return int(settled), sum(int(entry.split("=")[1]) for entry in workers.decode().split(";") if entry)
