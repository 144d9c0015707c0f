"""Backends, records and attempts to write down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import select

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.policy import Policy
from gateway.domain.record import Attempt, Record, new_request_id
from gateway.domain.request import DialectName
from gateway.domain.tenant import Key, Tenant
from gateway.ledger.journal.append import append
from gateway.ledger.journal.writer import Journal
from gateway.ledger.rows import Row
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger

PRICE = PriceEntry(input=Decimal("1"), cached_input=Decimal("0.1"), output=Decimal("2"))
"""In pico-dollars: 1 000 000 an input token, 100 000 a cached one, 2 000 000 an output token."""
LARGE = Backend(name="large", kind="openai", base_url="http://127.0.0.1:9/v1", model="big", price=PRICE)
UNPRICED = Backend(name="mystery", kind="openai", base_url="http://127.0.0.1:9/v1", model="mystery", tier="small")
SIMULATED = Backend(name="pretend", kind="simulated", model="pretend-large", tier="large")
USAGE = Usage(input_tokens=10, cached_tokens=5, output_tokens=20)
COST = 10 * 10**6 + 5 * 10**5 + 20 * 2 * 10**6


class OwnPrices:
    """Backends' own prices only, so that no test depends on the packaged list."""

    def price(self, backend: Backend) -> Price | None:
        if backend.price is None or backend.price.input is None or backend.price.output is None:
            return None
        cached = {"cached_input": backend.price.cached_input} if backend.price.cached_input is not None else {}
        return Price.per_million(backend.price.input, backend.price.output, source="test", **cached)


def tenant(team: str = "search") -> Tenant:
    return Tenant(Key(f"key-{team}", team), Policy(team=team, organisation="acme"))


def record(team: str = "search", *, dialect: DialectName = "openai_chat", stream: bool = False, **facts: Any) -> Record:
    return Record(new_request_id(), tenant(team), "auto", dialect, stream, **facts)


def begin(record: Record, backend: Backend = LARGE, *, at: float | None = None, tokens: int = 10) -> Attempt:
    attempt = record.attempt(backend)
    attempt.input_tokens = tokens
    if at is not None:
        attempt.started_at = at
        if attempt.number == 1:  # nothing was waited for
            record.started_at = at
    return attempt


def finish(attempt: Attempt, usage: Usage | None = USAGE, outcome: Any = "ok") -> Attempt:
    attempt.outcome, attempt.usage, attempt.status = outcome, usage, 200
    return attempt


def spend(journal: Journal, team: str = "search", backend: Backend = LARGE, **facts: Any) -> Attempt:
    """One whole attempt through the journal."""
    entry = record(team, tags=facts.pop("tags", {}))
    attempt = begin(entry, backend, **facts)
    journal.open(attempt, entry)
    journal.close(finish(attempt), entry)
    return attempt


def row(request: str, number: int = 1, **facts: Any) -> Row:
    """A whole row, written by hand."""
    usual = {
        "id": f"{request}-{number}",
        "request_id": request,
        "attempt": number,
        "at": 1000.0,
        "organisation": "acme",
        "team": "search",
        "key_id": "key-search",
        "backend": "large",
        "model": "big",
        "outcome": "ok",
        "input_tokens": 10,
        "output_tokens": 20,
        "cost_pico": 50,
    }
    return Row(**{**usual, **facts})


def write(directory: Path, database: Database, rows: Iterable[Row], **options: Any) -> None:
    """`rows` through a journal and a writer of their own into the ledger and its chain. Off the loop only."""
    append(directory, rows, "test")

    async def drain() -> None:
        writer = Writer(directory, database, **options)
        await writer.drain_once()
        await writer.aclose()

    asyncio.run(drain())


def journal(directory: Path, **options: Any) -> Journal:
    return Journal(directory, **{"prices": OwnPrices(), "worker": "test", "mark_s": 3600.0, **options})


def ledger_rows(database: Database) -> list[dict[str, Any]]:
    with database.read() as connection:
        found = connection.execute(select(ledger).order_by(ledger.c.at, ledger.c.id)).mappings()
        return [dict(row) for row in found]
