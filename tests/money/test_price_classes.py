"""An attempt is billed at the service tier that served it; what has no price is named in its row, and can be found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt, Record
from gateway.domain.request import DialectName
from gateway.domain.units import PICO_PER_USD
from gateway.ledger.journal.writer import Journal
from gateway.ledger.prices import unpriced
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.prices.reprice import repriced
from gateway.ledger.reports.report import Line, read_usage
from gateway.ledger.rows import FIELDS, Row
from gateway.ledger.store.archive import retold
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from gateway.telemetry.flight import flight
from tests.fakes.clock import StoppedClock
from tests.ledger.samples import begin, journal, ledger_rows, record

GPT = Backend(name="gpt", kind="openai", base_url="https://api.openai.com/v1", model="gpt-5.1")
CLAUDE = Backend(name="claude", kind="anthropic", base_url="https://api.anthropic.com/v1", model="claude-opus-4-8")
OWN = Backend(
    name="own",
    kind="openai",
    base_url="http://127.0.0.1:9/v1",
    model="gpt-5.1",
    price=PriceEntry(input=Decimal(1), output=Decimal(2), service_tiers={"flex": Decimal("0.5")}),
)
MACHINE = Backend(
    name="vllm",
    kind="openai",
    base_url="http://127.0.0.1:9/v1",
    model="qwen",
    price=PriceEntry(machine_hour_usd=Decimal("3.6"), tokens_per_second=1000),
)
USAGE = Usage(1000, cached_tokens=100, output_tokens=200)
STANDARD = 1000 * 1_250_000 + 100 * 125_000 + 200 * 10_000_000
"""Pico-dollars of USAGE at gpt-5.1's standard tier."""
OPUS = 1000 * 5_000_000 + 100 * 500_000 + 200 * 25_000_000


class Ledger:
    """A journal with the packaged prices, and what became of it."""

    def __init__(self, books: Journal, database: Database, directory: Path, prices: PriceBook) -> None:
        self.books, self._database, self._directory, self._prices = books, database, directory, prices
        self.record: Record = record()

    def book(
        self, backend: Backend, usage: Usage | None, *, stream: bool = False, asked: str = "", **facts: Any
    ) -> Attempt:
        dialect: DialectName = facts.pop("dialect", "openai_chat")
        self.record = record(stream=stream, dialect=dialect)
        attempt = begin(self.record, backend)
        attempt.service_tier = asked
        self.books.open(attempt, self.record)
        attempt.outcome, attempt.usage, attempt.status = facts.pop("outcome", "ok"), usage, 200
        self.books.close(attempt, self.record)
        return attempt

    async def row(self) -> dict[str, Any]:
        """The only one."""
        await self.write()
        (row,) = await self.rows()
        return row

    async def rows(self) -> list[dict[str, Any]]:
        return await asyncio.to_thread(ledger_rows, self._database)

    async def lists(self, by: str) -> tuple[unpriced.Group, Line]:
        """The only group of the unpriced list, and the only line of a report."""

        def read() -> tuple[unpriced.Group, Line]:
            with snapshot(self._database) as connection:
                (group,) = unpriced.groups(connection, self._prices, {"gpt": GPT})
                (line,) = read_usage(connection, [(by,)])[0].rows
            return group, line

        return await asyncio.to_thread(read)

    async def write(self) -> None:
        writer = Writer(self._directory, self._database)
        await writer.drain_once()
        await writer.aclose()


@pytest.fixture(scope="module")
def prices() -> PriceBook:
    return PriceBook.load()


@pytest.fixture
async def books(tmp_path: Path, database: Database, prices: PriceBook) -> AsyncIterator[Ledger]:
    books = journal(tmp_path / "journal", prices=prices)
    await books.start()
    yield Ledger(books, database, tmp_path / "journal", prices)
    await books.aclose()


def served(tier: str, **more: Any) -> Usage:
    return replace(USAGE, service_tier=tier, **more)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(
    ("backend", "tier", "cost", "units"),
    [
        (GPT, "", STANDARD, ""),
        (GPT, "priority", 2 * STANDARD, ""),
        (GPT, "flex", STANDARD // 2, ""),
        (GPT, "batch", STANDARD // 2, ""),
        (GPT, "scale", 2 * STANDARD, "service_tier=scale"),
        (CLAUDE, "", OPUS, ""),
        (CLAUDE, "fast", 2 * OPUS, ""),
        (CLAUDE, "us", OPUS * 11 // 10, ""),
        (CLAUDE, "fast+us", OPUS * 22 // 10, ""),
        (CLAUDE, "priority", OPUS * 22 // 10, "service_tier=priority"),
        (OWN, "", 1100 * 10**6 + 400 * 10**6, ""),
        (OWN, "flex", (1100 * 10**6 + 400 * 10**6) // 2, ""),
        (OWN, "priority", 1100 * 10**6 + 400 * 10**6, "service_tier=priority"),
    ],
)
async def test_a_row_costs_what_the_tier_that_served_does(
    books: Ledger, backend: Backend, tier: str, cost: int, units: str, stream: bool
) -> None:
    attempt = books.book(backend, served(tier), stream=stream)
    row = await books.row()
    assert (row["cost_pico"], row["service_tier"], row["unpriced"]) == (cost, tier, units)
    assert (attempt.cost_pico, attempt.unpriced) == (cost, units)
    assert ("tier" in row["price_source"]) is bool(tier) or units


async def test_a_machines_hour_costs_the_same_at_every_tier(books: Ledger, prices: PriceBook) -> None:
    books.book(MACHINE, served("priority"))
    row = await books.row()
    plain = prices.price(MACHINE)
    assert plain is not None
    assert (row["cost_pico"], row["unpriced"]) == (plain.cost(USAGE), "")


async def test_fees_are_named_beside_the_cost_of_the_tokens(books: Ledger) -> None:
    books.book(GPT, replace(USAGE, fees=(("web_search", 5), ("file_search", 0)), doubt="total is less than its parts"))
    row = await books.row()
    assert (row["cost_pico"], row["unpriced"]) == (STANDARD, "web_search:5")
    assert row["doubt"] == "total is less than its parts"


async def test_fees_are_named_where_the_tokens_have_no_price_either(books: Ledger) -> None:
    books.book(GPT.model_copy(update={"model": "gpt-99"}), served("priority", fees=(("web_search", 2),)))
    row = await books.row()
    assert (row["cost_pico"], row["unpriced"], row["service_tier"]) == (None, "web_search:2", "priority")


async def test_long_calls_cost_more_at_their_tier_too(books: Ledger) -> None:
    sol = GPT.model_copy(update={"model": "gpt-5.6-sol"})
    books.book(sol, Usage(300_000, output_tokens=10, service_tier="priority"))
    row = await books.row()
    assert row["cost_pico"] == 300_000 * 16_000_000 + 10 * 60_000_000
    assert row["prices"].startswith("input=16000000 output=60000000")


async def test_an_answer_without_usage_is_billed_at_the_tier_that_was_asked_for(books: Ledger) -> None:
    attempt = books.book(GPT, Usage(1000, output_tokens=10, estimated=True), asked="priority", outcome="interrupted")
    row = await books.row()
    assert (row["cost_pico"], row["service_tier"]) == (1000 * 2_500_000 + 10 * 20_000_000, "priority")
    assert attempt.usage is not None
    assert attempt.usage.service_tier == "priority"


async def test_a_call_whose_worker_died_is_billed_at_the_tier_that_was_asked_for(books: Ledger) -> None:
    for asked in ("priority", "scale"):
        entry = record()
        attempt = begin(entry, GPT, tokens=1000)
        attempt.service_tier = asked
        books.books.open(attempt, entry)
    await books.books.aclose()
    await books.write()
    found = {row["service_tier"]: (row["cost_pico"], row["unpriced"]) for row in await books.rows()}
    assert found == {"priority": (2_500_000_000, ""), "scale": (2_500_000_000, "service_tier=scale")}


async def test_sound_whose_tokens_nobody_reported_has_no_cost(books: Ledger) -> None:
    speech = GPT.model_copy(update={"model": "gpt-4o-mini-tts"})
    books.book(speech, Usage(10, estimated=True), dialect="openai_other")
    assert (await books.row())["cost_pico"] is None


async def test_a_reported_transcription_costs_its_tokens(books: Ledger) -> None:
    listener = GPT.model_copy(update={"model": "gpt-4o-transcribe"})
    books.book(listener, Usage(1000, output_tokens=100), dialect="openai_other")
    assert (await books.row())["cost_pico"] == 1000 * 2_500_000 + 100 * 10_000_000


async def test_the_unpriced_list_has_units_beside_rows_without_a_cost(books: Ledger) -> None:
    books.book(GPT, replace(USAGE, fees=(("web_search", 5),)))
    books.book(GPT, served("scale", fees=(("web_search", 2), ("file_search", 1))))
    books.book(GPT, served("priority"))
    await books.write()
    group, line = await books.lists("model")
    assert (group.why, group.rows, group.units) == ("units", 2, "file_search:1,service_tier=scale,web_search:7")
    assert line.unpriced == 2


async def test_rows_that_became_sums_are_still_in_the_unpriced_list(
    books: Ledger, database: Database, tmp_path: Path
) -> None:
    books.book(GPT, replace(USAGE, fees=(("web_search", 5),)))
    books.book(GPT, replace(USAGE, fees=(("web_search", 5),)))
    writer = Writer(tmp_path / "journal", database, keep_days=1, clock=StoppedClock(time.time() + 3 * 86400.0))
    await writer.drain_once()
    await writer.retain_all()
    await writer.aclose()
    assert await books.rows() == []
    group, tier = await books.lists("service_tier")
    assert (group.rows, group.units) == (2, "web_search:10")
    assert (tier.group, tier.unpriced) == (("standard",), 2)


async def test_a_tier_that_gets_a_price_is_repriced_and_its_fees_stay_named(books: Ledger, prices: PriceBook) -> None:
    books.book(OWN, served("priority", fees=(("web_search", 1),)))
    found = await books.row()
    row = Row(**{name: found[name] for name in FIELDS})
    dear = OWN.model_copy(
        update={"price": PriceEntry(input=Decimal(1), output=Decimal(2), service_tiers={"priority": Decimal(3)})}
    )
    (fresh,) = repriced([row], lambda _: prices, {"own": dear})
    assert (fresh.cost_pico, fresh.unpriced, fresh.service_tier) == (3 * row.cost_pico, "web_search:1", "priority")  # type: ignore[operator]
    assert list(repriced([fresh], lambda _: prices, {"own": dear})) == []


async def test_the_flight_record_shows_tier_units_and_doubt(books: Ledger) -> None:
    books.book(GPT, served("scale", fees=(("web_search", 5),), doubt="odd"))
    found = await books.row()
    shown = ("scale", "web_search:5,service_tier=scale", "odd")
    for told in (retold([Row(**{name: found[name] for name in FIELDS})]), flight(books.record)):
        (attempt,) = told["attempts"]
        assert (attempt["service_tier"], attempt["unpriced"], attempt["doubt"]) == shown


def test_a_tuned_model_has_its_own_price_or_none(prices: PriceBook) -> None:
    def price(model: str) -> Price | None:
        return prices.price(Backend(name=model, kind="openai", base_url="https://api.openai.com/v1", model=model))

    tuned = price("ft:gpt-4o-2024-11-20:acme::abc")
    assert tuned is not None
    assert (tuned.input, tuned.cached_input, tuned.cache_write_5m) == (3_750_000, 1_875_000, None)
    assert price("ft:gpt-5:acme::abc") is None
    assert price("ft:gpt-4o:acme::abc") is None


@pytest.mark.parametrize(
    ("model", "usd"), [("text-embedding-3-small", "0.02"), ("text-embedding-3-large", "0.13"), ("gpt-image-1", "5")]
)
def test_embeddings_and_images_are_priced(prices: PriceBook, model: str, usd: str) -> None:
    price = prices.price(Backend(name="b", kind="openai", base_url="https://api.openai.com/v1", model=model))
    assert price is not None
    assert price.input * 10**6 == Decimal(usd) * PICO_PER_USD
