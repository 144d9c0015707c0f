"""A row's cost is the sum of its parts, as the row alone says."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.ledger.prices.applied import Terms, price_of, text_of
from gateway.ledger.rows import TOKENS, Row
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from tests.ledger.samples import LARGE, begin, finish, journal, ledger_rows, record

ABOVE = Price(input=9, output=90, cached_input=1)
TIERED = Price(input=3, output=30, cached_input=0, image=77, source="list", as_of="2026-01-01", beyond=(1000, ABOVE))


class Tiered:
    def price(self, backend: Backend) -> Price | None:
        return TIERED if backend is LARGE else None


def test_only_prices_of_its_own_are_named() -> None:
    assert text_of(TIERED) == "input=3 output=30 cached_input=0 image=77"
    assert text_of(ABOVE) == "input=9 output=90 cached_input=1"
    assert price_of(text_of(ABOVE)) == ABOVE


@pytest.mark.parametrize("text", ["input", "input=x output=1", "input=1 output=1 colour=2"])
def test_what_is_no_price_is_not_read_as_one(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        price_of(text)


counts = st.fixed_dictionaries({name: st.integers(0, 10**6) for name in TOKENS})


@given(counts)
def test_parts_add_up_whatever_the_tier(tokens: dict[str, int]) -> None:
    usage = Usage(**tokens)
    assert price_of(Terms(TIERED).text(usage.all_input)).cost(usage) == TIERED.cost(usage)


@given(counts)
def test_no_class_is_free_and_none_counts_twice(tokens: dict[str, int]) -> None:
    assert Price(input=1, output=1).cost(Usage(**tokens)) == sum(tokens.values()) == Usage(**tokens).total


def test_discounts_of_a_class_are_kept_to_the_pico_dollar() -> None:
    price = Price.per_million(Decimal("0.15"), Decimal("0.6"), cached_input=Decimal("0.000001"))
    assert text_of(price) == "input=150000 output=600000 cached_input=1"


async def test_every_row_of_the_ledger_adds_up(database: Database, tmp_path: Path) -> None:
    books = journal(tmp_path / "journal", prices=Tiered())
    await books.start()
    for usage in (Usage(5, output_tokens=7), Usage(900, 200, output_tokens=1, image_tokens=4), None):
        entry = record()
        attempt = begin(entry)
        books.open(attempt, entry)
        attempt.came(4000, 3)
        books.close(finish(attempt, usage, "ok" if usage else "interrupted"), entry)
    entry = record()
    books.open(begin(entry, tokens=2000), entry)  # its worker ends
    await books.aclose()
    writer = Writer(tmp_path / "journal", database)
    assert await writer.drain_once() == 4
    await writer.aclose()
    rows = await asyncio.to_thread(ledger_rows, database)
    whole = [Row(**{name: row[name] for name in Row._fields}) for row in rows]
    assert all(price_of(row.prices).cost(row.usage) == row.cost_pico for row in whole)
    assert [row.received_bytes for row in whole] == [4000, 4000, 4000, 0]
    assert {row.prices for row in whole} == {text_of(TIERED), text_of(ABOVE)}
