"""A whole pipeline of real parts in front of a scripted provider, and notes of what happened in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import select

from gateway.admission.budgets import Budgets
from gateway.admission.rate_limits import RateLimits
from gateway.backends.fleet import Fleet
from gateway.cache.cache import Cache
from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.policy import Policy
from gateway.domain.protocols import AttemptJournal
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Key, Tenant
from gateway.ledger.journal.writer import Journal
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.spent import Spending
from gateway.ledger.store.end_users import EndUsers
from gateway.ledger.store.writer import Writer
from gateway.pipeline import Pipeline, Reply
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from gateway.settings.gateway import TelemetrySettings
from gateway.state.leases.leases import Leases
from gateway.state.redis.connection import State
from gateway.state.redis.log import IndexLog
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from gateway.telemetry.observe import Telemetry
from tests.fakes.embedder import FakeEmbedder
from tests.fakes.provider import Provider
from tests.support.pieces import with_ending
from tests.support.requests import small_request
from tests.support.waiting import until

ZONES = [ZoneInfo("UTC")]
"""Policies are loaded in a thread, which reads the zones' files; here they are read now and kept."""
INPUT, OUTPUT = 1_000_000, 10_000_000
"""Pico-dollars per token of every backend."""

grader = cache(Grader.load)
catalogue = cache(PriceBook.load)


class Noted:
    """Stands before a part and notes when some of its methods are called."""

    def __init__(self, real: Any, notes: list[str], **names: str) -> None:
        self._real, self._notes, self._names = real, notes, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name not in self._names:
            return found

        def noted(*args: Any, **more: Any) -> Any:
            self._notes.append(self._names[name])
            return found(*args, **more)

        return noted


class NotedBudgets(Noted):
    def hold(self, *args: Any) -> Noted:
        return Noted(self._real.hold(*args), self._notes, settle="settled", extend="held", release="hold left")


class NotedLimits(Noted):
    async def admit(self, *args: Any) -> Noted:
        permit = await self._real.admit(*args)
        self._notes.append("admitted")
        return Noted(permit, self._notes, settle="tokens settled", release="place left")


def backend(provider: Provider, name: str, **more: Any) -> Backend:
    price = PriceEntry(input=Decimal(INPUT) / 10**6, output=Decimal(OUTPUT) / 10**6)
    fields: dict[str, Any] = {"kind": "openai", "base_url": provider.url, "model": f"model-{name}", "tier": "small"}
    return Backend(name=name, **{**fields, "price": price, "window_tokens": 8000, **more})


def tenant(key: str = "key_1", team: str = "search", **policy: Any) -> Tenant:
    return Tenant(Key(key, team), Policy(team=team, **policy), "e1")


@dataclass
class InProcessGateway:
    """The parts, and shorthand to send requests."""

    pipeline: Pipeline
    provider: Provider
    fleet: Fleet
    telemetry: Telemetry
    database: Database
    writer: Writer
    notes: list[str]
    record: Record = field(default_factory=lambda: record_of(small_request(), tenant()))
    """Of the last request."""
    pieces: list[bytes] = field(default_factory=list)
    """What the client of the last request has got so far."""

    async def serve(self, request: CompletionRequest, who: Tenant | None = None, within_s: float = 30.0) -> Reply:
        self.record = record_of(request, who or tenant())
        deadline = asyncio.get_running_loop().time() + within_s
        return await self.pipeline.serve(request, self.record.tenant, self.record, deadline)

    async def read(self, request: CompletionRequest, who: Tenant | None = None, within_s: float = 30.0) -> bytes:
        """All of the answer."""
        self.pieces.clear()
        async with await self.serve(request, who, within_s) as reply:
            async for piece in with_ending(reply):
                self.pieces.append(piece)
        return b"".join(self.pieces)

    async def rows(self) -> list[dict[str, Any]]:
        """The ledger, once all that was journalled is in it."""
        await self.writer.drain_once()
        query = select(ledger).order_by(ledger.c.at, ledger.c.id)
        return await self.database.run(lambda link: [dict(row) for row in link.execute(query).mappings()])

    async def stored(self, count: int = 1) -> None:
        """Wait until the cache has taken up so many answers."""
        await until(lambda: self.pipeline.cache.stats()["entries"] == count)

    @property
    def emitted(self) -> int:
        """Requests that telemetry has heard the end of."""
        return sum(self.telemetry.totals.requests.values())

    def quiet(self) -> bool:
        """Is nothing of any request left?"""
        return not self.telemetry.totals.in_flight and not any(
            self.fleet.state(each).in_flight for each in self.fleet.backends
        )


def record_of(request: CompletionRequest, who: Tenant) -> Record:
    return Record(request.id, who, request.model, request.dialect, request.stream)


@asynccontextmanager
async def open_gateway(
    state: State,
    database: Database,
    folder: Path,
    *,
    books: AttemptJournal | None = None,
    more: Callable[[Provider], tuple[Backend, ...]] = lambda provider: (),
    **fields: Any,
) -> AsyncIterator[InProcessGateway]:
    """One provider behind the backend `small`, which has these `fields` too, and whatever `more` makes of it."""
    notes: list[str] = []
    prices, grades = await asyncio.to_thread(catalogue), await asyncio.to_thread(grader)
    async with AsyncExitStack() as exits:
        provider = await exits.enter_async_context(Provider())

        async def opened(part: Any) -> Any:
            exits.push_async_callback(part.aclose)
            await part.open()
            return part

        fleet = await opened(Fleet((backend(provider, "small", queue_timeout=0.2, **fields), *more(provider))))
        journal = Journal(folder / "journal", prices=prices, worker="0")
        await journal.start()
        exits.push_async_callback(journal.aclose)
        leases = Leases(state, period_s=0.05)
        budgets = Budgets(state, prices, Spending(folder / "journal", database), leases=leases, patience_s=0.2)
        log = IndexLog(state, "cache")
        telemetry = await opened(Telemetry(TelemetrySettings(access_log=False), state))
        counter = Counter()
        pipeline = Pipeline(
            limits=NotedLimits(await opened(RateLimits(state)), notes),  # type: ignore[arg-type]
            budgets=NotedBudgets(await opened(budgets), notes),  # type: ignore[arg-type]
            contexts=Contexts(counter),
            counter=counter,
            cache=Noted(await opened(Cache(state, log, FakeEmbedder())), notes, store="stored"),  # type: ignore[arg-type]
            router=Router(lambda: grades, prices, fleet, fleet.backends),
            fleet=fleet,
            books=Noted(books or journal, notes, open="opened", close="journalled", cached="hit journalled"),  # type: ignore[arg-type]
            end_users=await opened(EndUsers(folder / "pseudonyms.key", database)),
            telemetry=telemetry,
        )
        writer = Writer(folder / "journal", database)
        exits.push_async_callback(writer.aclose)
        yield InProcessGateway(pipeline, provider, fleet, telemetry, database, writer, notes)
