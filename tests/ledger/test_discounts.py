"""What was negotiated is taken off the list's price on its days, and the list's price can be told again."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.price import Price
from gateway.domain.money.price_classes import times
from gateway.ledger.prices.catalogue import Catalogue
from gateway.ledger.prices.discounts import drawn, undiscounted
from gateway.ledger.prices.price_book import PriceBook
from gateway.settings.files import ConfigError, parse
from gateway.settings.gateway import GatewayConfig
from gateway.settings.prices import PriceSettings
from gateway.state.sql.database import Database
from tests.ledger.booked import DAY, JANUARY, book, row

GPT = Backend(name="gpt", kind="openai", base_url="https://api.openai.com/v1", model="gpt-4o")


def catalogue(*discounts: dict[str, Any], on: date = date(2026, 6, 1)) -> PriceBook:
    terms = PriceSettings.model_validate({"discounts": discounts})
    return PriceBook(Catalogue.load(), terms, today=lambda: on)


def rates(found: PriceBook, backend: Backend = GPT) -> tuple[int, int]:
    price = found.price(backend)
    assert price is not None
    return price.input, price.output


def test_a_providers_discount_is_off_every_class_and_told_in_the_source() -> None:
    price = catalogue({"provider": "openai", "percent": 20}).price(GPT)
    assert price is not None
    assert (price.input, price.cached_input, price.output) == (2_000_000, 1_000_000, 8_000_000)
    assert price.source == "list openai/gpt-4o, less 20%"


def test_a_backends_own_discount_comes_before_its_providers() -> None:
    assert rates(catalogue({"provider": "openai", "percent": 20}, {"backend": "gpt", "percent": 50}))[0] == 1_250_000


def test_others_pay_the_list_and_a_price_of_ones_own_is_what_it_says() -> None:
    found = catalogue({"provider": "anthropic", "percent": 20})
    assert rates(found) == (2_500_000, 10_000_000)
    own = GPT.model_copy(update={"price": PriceEntry(input=Decimal(1), output=Decimal(2))})
    assert rates(catalogue({"backend": "gpt", "percent": 50}), own) == (1_000_000, 2_000_000)


@pytest.mark.parametrize(
    ("on", "discounted"),
    [(date(2025, 12, 31), False), (date(2026, 1, 1), True), (date(2026, 6, 30), True), (date(2026, 7, 1), False)],
)
def test_a_discount_holds_from_its_first_day_until_its_end(on: date, discounted: bool) -> None:
    term = {"provider": "openai", "percent": 10, "valid_from": "2026-01-01", "valid_until": "2026-07-01"}
    assert (rates(catalogue(term, on=on))[0] == 2_250_000) is discounted


def test_a_price_changes_at_midnight_without_a_restart() -> None:
    today = [date(2026, 1, 1)]
    terms = PriceSettings.model_validate(
        {"discounts": [{"provider": "openai", "percent": 10, "valid_from": "2026-01-02"}]}
    )
    found = PriceBook(Catalogue.load(), terms, today=lambda: today[0])
    before = rates(found)
    today[0] = date(2026, 1, 2)
    assert (before[0], rates(found)[0]) == (2_500_000, 2_250_000)


def test_what_is_scaled_is_rounded_up_and_its_long_calls_with_it() -> None:
    price = times(Price(1, 3, beyond=(10, Price(5, 7))), Decimal("0.5"), "s")
    assert (price.input, price.output) == (1, 2)
    assert price.beyond is not None
    assert (price.beyond[1].input, price.beyond[1].output) == (3, 4)


@pytest.mark.parametrize("percent", ["20", "12.5", "0.01", "33"])
def test_the_lists_price_can_be_told_from_the_row(percent: str) -> None:
    price = catalogue({"provider": "openai", "percent": percent}).price(GPT)
    assert price is not None
    assert undiscounted(price.output, f"{price.source} (2026-10-21)") == 10_000_000
    assert undiscounted(7, "list openai/gpt-4o (2026-10-21)") == 7


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ("discounts: [{percent: 5}]", "give either backend or provider"),
        ("discounts: [{provider: a, backend: b, percent: 5}]", "give either backend or provider"),
        ("discounts: [{provider: a, percent: 0}]", "must be above 0"),
        ("discounts: [{provider: a, percent: -5}]", "must be above 0"),
        ("discounts: [{provider: a, percent: 101}]", "must be at most 100"),
        ("discounts: [{provider: a, percent: 5, until: 2026-01-01}]", "unknown key"),
        (
            "discounts: [{provider: a, percent: 5, valid_from: 2026-02-01, valid_until: 2026-02-01}]",
            "valid_until: must be after valid_from",
        ),
        (
            "discounts: [{provider: a, percent: 5}, {provider: a, percent: 6, valid_from: 2026-01-01}]",
            "two discounts for provider a apply at the same time",
        ),
        ("credits: [{name: x, provider: a, usd: -1}]", "not negative"),
        ("credits: [{name: x, provider: a, usd: 1}, {name: x, provider: b, usd: 1}]", "same name"),
        ("currency: {code: euro, per_usd: 0.9, as_of: 2026-01-01}", "must match"),
        ("currency: {code: EUR, per_usd: 0, as_of: 2026-01-01}", "must be above 0"),
    ],
)
def test_terms_that_make_no_sense_are_told_with_their_key(section: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as told:
        parse(f"prices:\n  {section}\n", GatewayConfig, "gateway.yaml")
    assert "gateway.yaml:2: prices." in str(told.value)


def test_discounts_that_follow_each_other_are_fine() -> None:
    text = (
        "prices: {discounts: [{provider: a, percent: 5, valid_until: 2026-02-01}, "
        "{provider: a, percent: 6, valid_from: 2026-02-01}]}"
    )
    assert len(parse(text, GatewayConfig, "x").prices.discounts) == 2


def test_a_credit_is_drawn_by_what_it_is_for_and_when(any_database: Database) -> None:
    listed = {"backend": "gone", "price_source": "list openai/gpt-4o, less 20% (2026-10-21)"}
    book(any_database, row(cost_pico=7), row(cost_pico=5, backend="else"), row(cost_pico=3, **listed))
    book(any_database, row(cost_pico=100, at=JANUARY + DAY))
    credits = PriceSettings.model_validate(
        {
            "credits": [
                {"name": "all", "provider": "openai", "usd": "0.000000000008", "valid_until": "2026-01-02"},
                {"name": "one", "backend": "large", "usd": "1", "valid_from": "2026-01-02"},
            ]
        }
    ).credits
    with any_database.read() as connection:
        first, second = drawn(connection, credits, {"large": "openai", "else": "acme"})
    assert (first.used_pico, first.left_pico, first.over_pico) == (8, 0, 2)
    assert (second.used_pico, second.left_pico, second.over_pico) == (100, 10**12 - 100, 0)
