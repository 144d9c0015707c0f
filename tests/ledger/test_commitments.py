"""Which backends are paid already: while their commitment is valid and something of it is left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.backend import Backend
from gateway.ledger.prices import commitments
from gateway.ledger.prices.commitments import follow, prepaid
from gateway.ledger.prices.price_book import PriceBook
from gateway.settings.prices import Credit
from gateway.state.sql.database import Database
from tests.ledger.booked import DAY, JANUARY, USD, book, row
from tests.support.waiting import until

GPT = Backend(name="gpt", kind="openai", base_url="https://api.openai.com/v1", model="gpt-4o")
PROVIDERS = {"gpt": "openai", "mini": "openai", "sonnet": "anthropic", "own": ""}


@pytest.fixture
def prices() -> PriceBook:
    return PriceBook.load()


def credit(**facts: Any) -> Credit:
    usual = {"name": "one", "backend": "gpt", "usd": 5, "valid_from": "2026-01-01", "valid_until": "2026-02-01"}
    return Credit.model_validate({name: value for name, value in {**usual, **facts}.items() if value is not None})


def paid(database: Database, *credits: Credit, day: float = 0.0) -> set[str]:
    with database.read() as connection:
        return set(prepaid(connection, credits, PROVIDERS, JANUARY + day * DAY))


def test_a_backend_is_paid_until_its_amount_is_used_up(database: Database) -> None:
    assert paid(database, credit()) == {"gpt"}
    book(database, row(backend="gpt", cost_pico=5 * USD - 1), row(backend="sonnet", cost_pico=90 * USD))
    assert paid(database, credit()) == {"gpt"}
    book(database, row(backend="gpt", cost_pico=1))
    assert paid(database, credit()) == set()


@pytest.mark.parametrize(("day", "found"), [(-0.001, set()), (0, {"gpt"}), (30.999, {"gpt"}), (31, set())])
def test_a_commitment_counts_in_its_period_only(database: Database, day: float, found: set[str]) -> None:
    assert paid(database, credit(), day=day) == found


def test_a_new_period_begins_with_its_whole_amount(database: Database) -> None:
    january, february = credit(), credit(name="two", valid_from="2026-02-01", valid_until="2026-03-01")
    book(database, row(backend="gpt", cost_pico=6 * USD))
    assert paid(database, january, february, day=30.9) == set()
    assert paid(database, january, february, day=31) == {"gpt"}
    book(database, row(backend="gpt", cost_pico=6 * USD, at=JANUARY + 31 * DAY))
    assert paid(database, january, february, day=31) == set()


def test_a_providers_commitment_pays_all_of_its_backends_together(database: Database) -> None:
    common = credit(backend=None, provider="openai")
    assert paid(database, common) == {"gpt", "mini"}
    book(database, row(backend="gpt", cost_pico=3 * USD), row(backend="mini", cost_pico=2 * USD))
    assert paid(database, common) == set()


@pytest.mark.parametrize(
    ("facts", "preferred"),
    [({}, True), ({"valid_until": None}, False), ({"valid_until": None, "use_first": True}, True)],
)
def test_money_that_is_not_lost_later_is_not_spent_first(
    database: Database, facts: dict[str, Any], preferred: bool
) -> None:
    assert (paid(database, credit(**facts)) == {"gpt"}) is preferred
    assert paid(database, credit(use_first=False)) == set()


def test_several_workers_exceed_the_amount_by_the_calls_between_two_readings_at_most(database: Database) -> None:
    """Each of three workers reads the balance before every fifth of its calls; a call costs 0.01 USD."""
    workers, calls, cost = [PriceBook.load() for _ in range(3)], 5, USD // 100
    used = elsewhere = 0
    for number in range(600):
        prices = workers[number % 3]
        if number // 3 % calls == 0:
            prices.prepay(frozenset(paid(database, credit(usd=1.005))))
        if prices.prepaid(GPT):
            book(database, row(backend="gpt", cost_pico=cost))
            used += cost
        else:
            elsewhere += 1
    assert 1.005 * USD <= used <= 1.005 * USD + len(workers) * calls * cost
    assert elsewhere == 600 - used // cost


async def test_a_worker_follows_the_balance_and_the_price_of_the_ledger_stays(
    database: Database, prices: PriceBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commitments, "EVERY_S", 0.01)
    before = prices.price(GPT)
    lasting = credit(valid_from=None, valid_until="2999-01-01")
    task = asyncio.ensure_future(follow(database, [lasting], [GPT], prices, time))
    try:
        await until(lambda: prices.prepaid(GPT))
        assert prices.price(GPT) is before
        await asyncio.to_thread(book, database, row(backend="gpt", cost_pico=5 * USD, at=time.time()))
        await until(lambda: not prices.prepaid(GPT))
    finally:
        task.cancel()


async def test_without_a_database_no_backend_counts_as_paid(
    prices: PriceBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commitments, "EVERY_S", 0.01)
    empty = await asyncio.to_thread(Database, f"sqlite:///{tmp_path / 'without-tables.sqlite'}")
    prices.prepay(frozenset({"gpt"}))
    task = asyncio.ensure_future(follow(empty, [credit(valid_until="2999-01-01")], [GPT], prices, time))
    try:
        await until(lambda: not prices.prepaid(GPT))
        await asyncio.sleep(0.1)
        assert caplog.text.count("balances of commitments cannot be read") == 1
    finally:
        task.cancel()
        await asyncio.to_thread(empty.close)
