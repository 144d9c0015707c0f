"""The statement compares like with like, counts its own overhead, and shows losses."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.price import Price
from gateway.domain.policy import ModelRule, Policy
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.savings import METHOD, Statement, as_object, reference_of, statements
from gateway.state.sql.database import Database
from tests.ledger.booked import JANUARY, book, roll_up, row

PRICE = Price(4_000_000, 8_000_000, cached_input=400_000)
DEAR = Backend(
    name="dear", kind="openai", base_url="http://127.0.0.1:9/v1", model="dear", price=PriceEntry(input=4, output=8)
)  # type: ignore[arg-type]
USUAL = 10 * 4_000_000 + 5 * 400_000 + 20 * 8_000_000
"""A row's tokens on the reference."""


def statement(database: Database, price: Price = PRICE, **asked: Any) -> Statement:
    with database.read() as connection:
        (one,) = statements(connection, {"search": (DEAR, price)}, **asked)
    return one


def test_a_cheap_answer_saves_what_the_reference_would_have_cost_more(any_database: Database) -> None:
    book(any_database, row(), row(team="chat"))
    one = statement(any_database)
    assert (one.requests, one.baseline_pico, one.cost_pico) == (1, USUAL, 50_500_000)
    assert one.saved_pico == USUAL - 50_500_000


def test_what_was_trimmed_would_have_been_sent(any_database: Database) -> None:
    book(any_database, row(trimmed_tokens=7))
    assert statement(any_database).baseline_pico == USUAL + 7 * 4_000_000


def test_failed_escalated_hedged_and_shadow_attempts_are_overhead_and_cost(any_database: Database) -> None:
    weak = row(outcome="escalated", cost_pico=3)
    served = row(request_id=weak["request_id"], attempt=2)
    more = [row(kind="hedge", cost_pico=5), row(kind="shadow", cost_pico=7), row(outcome="failed", cost_pico=11)]
    more += [row(kind="keep_alive", cost_pico=13), row(kind="summary", cost_pico=17)]
    book(any_database, weak, served, *more)
    one = statement(any_database)
    overhead = {"failed": 11, "escalated": 3, "hedge": 5, "shadow": 7, "keep_alive": 13, "summary": 17}
    assert one.overhead_pico == overhead
    assert (one.requests, one.baseline_pico) == (1, USUAL)
    assert one.cost_pico == 50_500_000 + 56


def test_a_session_is_warm_on_the_reference(any_database: Database) -> None:
    turn = {"session": "s", "cached_tokens": 0}
    book(
        any_database,
        row(at=JANUARY, **turn),
        row(at=JANUARY + 1, **turn, input_tokens=100),
        row(at=JANUARY + 2, session="t"),
    )
    one = statement(any_database)
    first = 10 * 4_000_000 + 160_000_000
    second = 70 * 4_000_000 + 30 * 400_000 + 160_000_000  # 10 sent and 20 received before are read from the cache
    assert one.baseline_pico == first + second + USUAL


def test_a_cache_answer_would_have_been_bought(any_database: Database) -> None:
    book(any_database, row(attempt=0, backend="", cost_pico=0, cache="exact"))
    assert statement(any_database).saved_pico == USUAL


def test_losses_are_shown(any_database: Database) -> None:
    book(any_database, row(cost_pico=10**12))
    told = as_object([statement(any_database)])
    assert told["teams"][0]["saved_usd"].startswith("-0.999")
    assert told["total"]["saved_usd"] == told["teams"][0]["saved_usd"]
    assert told["method"] == METHOD


def test_what_is_not_routed_is_on_both_sides_and_what_has_no_price_on_neither(any_database: Database) -> None:
    unpriced = row(cost_pico=None)
    book(
        any_database,
        row(),
        unpriced,
        row(dialect="openai_embeddings"),
        row(simulated=True),
        row(kind="idle", attempt=0),
    )
    one = statement(any_database)
    assert (one.requests, one.unpriced, one.baseline_pico) == (1, 1, USUAL + 50_500_000)
    assert one.cost_pico == 2 * 50_500_000


def test_long_calls_cost_the_references_own_tier(any_database: Database) -> None:
    book(any_database, row(), row(input_tokens=2000, cached_tokens=0))
    price = replace(PRICE, beyond=(1000, Price(10_000_000, 20_000_000)))
    assert statement(any_database, price).baseline_pico == USUAL + 2000 * 10_000_000 + 20 * 20_000_000


def test_rolled_up_requests_count_too(any_database: Database) -> None:
    roll_up(any_database, requests=4, attempts=4, cost_pico=9, cached_tokens=5)
    one = statement(any_database)
    assert (one.requests, one.baseline_pico, one.cost_pico) == (4, USUAL, 9)


def test_without_a_reference_that_has_a_price_nothing_is_claimed(database: Database) -> None:
    book(database, row())
    with database.read() as connection:
        (one,) = statements(connection, {"search": None, "idle team": None})
    assert (one.team, one.saved_pico, as_object([one])["teams"][0]["saved_usd"]) == ("search", None, None)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (None, "dear"),
        ("cheap", "cheap"),
        (ModelRule(reference="small"), "cheap"),
        (ModelRule(candidates=("cheap",)), "cheap"),
        (ModelRule(reference="free"), "dear"),
    ],
)
def test_the_reference_is_the_policys_else_the_dearest(rule: Any, name: str) -> None:
    def priced(name: str, usd: int, **facts: Any) -> Backend:
        price = PriceEntry(input=Decimal(usd), output=Decimal(usd))
        return DEAR.model_copy(update={"name": name, "model": name, "price": price, **facts})

    backends = [priced("cheap", 1, tier="small"), priced("dear", 9, tier="large"), priced("free", 0)]
    policy = Policy(team="search", models={} if rule is None else {"auto": rule})
    found = reference_of(policy, backends, PriceBook.load())
    assert found is not None
    assert found.name == name
