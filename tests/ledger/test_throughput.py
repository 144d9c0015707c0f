"""A machine's tokens per second are those of the time that it was busy, and what was assumed gives way to them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.prices.throughput import PRIOR_S, busy_s, measured
from gateway.state.sql.database import Database
from tests.ledger.booked import JANUARY, book, row

GPU = Backend(
    name="gpu",
    kind="openai",
    base_url="http://127.0.0.1:9/v1",
    model="qwen",
    price=PriceEntry(machine_hour_usd=Decimal("3.6"), tokens_per_second=100),
)
BUSY = {"backend": "gpu", "cached_tokens": 0, "input_tokens": 0}


def rate(database: Database, now: float = JANUARY + 100) -> Decimal | None:
    with database.read() as connection:
        return measured(connection, [GPU], now).get("gpu")


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ((), 0.0),
        (((0, 1), (2, 3)), 2.0),
        (((0, 2), (1, 3)), 3.0),
        (((0, 9), (1, 2), (8, 10)), 10.0),
        (((5, 6), (0, 1)), 2.0),
    ],
)
def test_time_is_busy_once_however_many_share_it(spans: tuple[tuple[float, float], ...], seconds: float) -> None:
    assert busy_s(spans) == seconds


def test_what_was_measured_outweighs_the_prior_as_it_grows(any_database: Database) -> None:
    assert rate(any_database) is None
    book(any_database, row(**BUSY, output_tokens=60 * 500, duration_ms=60_000.0))
    assert rate(any_database) == (100 * PRIOR_S + 60 * 500) / Decimal(PRIOR_S + 60)
    book(any_database, *(row(**BUSY, output_tokens=60 * 500, duration_ms=60_000.0) for _ in range(9)))
    assert rate(any_database) == 2550  # ten at once, in the same minute


def test_input_counts_a_tenth_and_what_is_long_ago_or_elsewhere_nothing(any_database: Database) -> None:
    book(any_database, row(**BUSY | {"input_tokens": 60_000}, output_tokens=0, duration_ms=60_000.0))
    book(any_database, row(**BUSY, at=JANUARY - 10_000, output_tokens=10**6, duration_ms=1.0))
    book(any_database, row(**BUSY | {"backend": "else"}, output_tokens=10**6, duration_ms=1.0))
    book(any_database, row(**BUSY, output_tokens=0, duration_ms=60_000.0, outcome="failed"))
    assert rate(any_database) == 100


def test_the_price_follows_and_says_so() -> None:
    catalogue = PriceBook.load()
    before = catalogue.price(GPU)
    catalogue.learn({"gpu": Decimal(200)})
    after = catalogue.price(GPU)
    assert before is not None
    assert after is not None
    assert (before.output, after.output) == (10_000_000, 5_000_000)
    assert before.source.endswith("100.0 tokens/s, assumed")
    assert after.source == "gateway.yaml, 3.6 USD per machine hour at 200 tokens/s, measured"
    assert catalogue.price(GPU) is after
    catalogue.learn({"gpu": Decimal(200)})
    assert catalogue.price(GPU) is after
