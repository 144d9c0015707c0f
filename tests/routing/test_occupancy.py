"""What one request more costs: Erlang's own values, and prices that follow from them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.price import Price
from gateway.domain.routing.load import Load
from gateway.routing.occupancy import IDLE_SHARE, at_load, congestion, expected_cost, waiting_share
from tests.routing.conftest import SMALL, backend

PRICE = Price.per_million(Decimal("0.2"), Decimal(2))
MACHINE: Backend = backend("gpu", "small").model_copy(update={"price": PriceEntry(machine_hour_usd=Decimal("7.2"))})


@pytest.mark.parametrize(
    ("places", "in_use", "share"),
    [
        (1, 0.4, 0.4),
        (2, 1.0, 1 / 3),
        (10, 8.0, 0.4092),
        (100, 90.0, 0.2168),
        (4, 0.0, 0.0),
        (4, 4.0, 1.0),
        (4, 9.0, 1.0),
    ],
)
def test_erlangs_formula_for_delayed_calls(places: int, in_use: float, share: float) -> None:
    """C(1, a) = a and C(2, 1) = 1/3 by hand; the others from tables."""
    assert waiting_share(places, in_use) == pytest.approx(share, abs=0.001)


@given(st.integers(1, 64), st.floats(0, 64), st.floats(0, 8))
def test_more_in_use_never_costs_less_and_more_places_never_more(places: int, in_use: float, more: float) -> None:
    assert 0 <= waiting_share(places, in_use) <= waiting_share(places, in_use + more) + 1e-9 <= 1 + 1e-9
    assert waiting_share(places + 1, in_use) <= waiting_share(places, in_use) + 1e-9


@pytest.mark.parametrize(
    ("load", "share"),
    [(Load(0, 0, 8), 0.0), (Load(40), 0.0), (Load(3, 1), 1.0), (Load(8, 0, 8), 1.0), (Load(2, 0, 2.9), 1.0)],
)
def test_a_server_is_full_when_somebody_waits_or_nobody_else_fits(load: Load, share: float) -> None:
    assert congestion(load) == pytest.approx(share)


def test_a_machine_at_its_full_pace_costs_its_hour() -> None:
    full = at_load(PRICE, 7.2, Load(4, 1, 4, full_tokens_per_second=500))
    assert full.output * 500 * 3600 == 7.2e12
    assert full.input / full.output == PRICE.input / PRICE.output
    idle = at_load(PRICE, 7.2, Load(0, 0, 4))
    assert (idle.input, idle.output) == (PRICE.input * IDLE_SHARE, PRICE.output * IDLE_SHARE)
    assert at_load(Price(1, 1), 7.2, Load(0, 0, 4)).input == 1  # never free


def test_only_machines_follow_their_load_and_only_cached_prices_what_is_warm() -> None:
    busy = Load(0, 0, 4)
    assert expected_cost(SMALL, PRICE, 1000, 10, load=busy) == PRICE.plain(1000, 10)
    assert expected_cost(MACHINE, PRICE, 1000, 10, load=None) == PRICE.plain(1000, 10)
    assert expected_cost(MACHINE, PRICE, 1000, 10, load=busy) == PRICE.plain(1000, 10) * IDLE_SHARE
    assert expected_cost(SMALL, PRICE, 1000, 10, warm_tokens=900, load=None) == PRICE.plain(1000, 10)
    cached = Price.per_million(Decimal("0.2"), Decimal(2), cached_input=Decimal("0.02"))
    cost = expected_cost(SMALL, cached, 1000, 10, warm_tokens=900, load=None)
    assert cost == 100 * 200_000 + 900 * 20_000 + 10 * 2_000_000
    assert expected_cost(SMALL, cached, 1000, 10, warm_tokens=5000, load=None) == 1000 * 20_000 + 10 * 2_000_000
