"""A price at each service tier: composed, at most, and in what class."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.domain.backend import PriceEntry
from gateway.domain.money.price import CLASSES, Price, effective
from gateway.domain.money.price_classes import LongContext, TierClasses, at_tiers, times
from gateway.domain.money.usage import Usage

USUAL = Price(100, 400, cached_input=10, audio_input=300, beyond=(1000, Price(200, 600, cached_input=20)))


def tier(**classes: int) -> TierClasses:
    """In pico-dollars."""
    return TierClasses(**{name: Decimal(pico).scaleb(-6) for name, pico in classes.items()})


def test_a_tier_with_its_own_prices_is_completed_from_the_usual_ones() -> None:
    price = at_tiers(USUAL, {"priority": tier(input=200, output=800), "flex": tier(input=50, output=200)})
    priority, flex = price.at("priority"), price.at("flex")
    assert priority is not None
    assert (priority.input, priority.output, priority.cached_input, priority.audio_input) == (200, 800, 20, 600)
    assert priority.beyond is not None
    assert (priority.beyond[0], priority.beyond[1].input, priority.beyond[1].output) == (1000, 400, 1200)
    assert flex is not None
    assert (flex.input, flex.cached_input, flex.audio_input) == (50, 10, 300)  # not cheaper unless the list says so
    assert flex.beyond is not None
    assert (flex.beyond[1].input, flex.beyond[1].output, flex.beyond[1].cached_input) == (100, 300, 20)
    assert flex.cost(Usage(1001, output_tokens=1)) == 1001 * 100 + 300


def test_a_tiers_own_long_prices_hold() -> None:
    above = LongContext(tokens=500, input=Decimal("0.0007"), output=Decimal("0.0009"))
    price = at_tiers(USUAL, {"priority": TierClasses(input=Decimal("0.0002"), output=Decimal("0.0008"), beyond=above)})
    assert price.cost(Usage(501, output_tokens=1, service_tier="priority")) == 501 * 700 + 900


def test_factors_combine_with_each_other_and_with_own_prices() -> None:
    price = at_tiers(USUAL, {"us": Decimal("1.1"), "fast": Decimal(2), "batch": tier(input=50, output=200)})
    found = {name: one.output for name, one in price.tiers.items()}
    assert found == {"us": 440, "fast": 800, "fast+us": 880, "batch": 200, "batch+us": 220, "batch+fast": 400} | {
        "batch+fast+us": 440
    }
    assert price.at("eu+fast") is None


def test_regions_and_discounts_reach_every_tier() -> None:
    price = times(at_tiers(USUAL, {"fast": Decimal(2)}, ("fast",)), Decimal("0.5"), ", less 50%")
    assert price.tiers["fast"].output == 400
    assert price.unasked().output == 400
    assert price.tiers["fast"].source.endswith(", fast tier, less 50%")


def test_the_standard_tier_has_no_name_and_a_machine_no_tiers() -> None:
    assert USUAL.at("") is USUAL
    assert USUAL.at("priority") is None
    assert USUAL.dearest() is USUAL
    assert USUAL.unasked() is USUAL
    machine = Price(1, 1, every_tier=True)
    assert machine.at("priority") is machine


@pytest.mark.parametrize(
    ("facts", "most"),
    [
        ({}, 10 * 100 + 5 * 450),
        ({"cache_writes": True}, 10 * 125 + 5 * 450),
        ({"audio_input": 3}, 10 * 100 + 5 * 450 + 3 * 300),
        ({"image_input": 3}, 10 * 100 + 5 * 450 + 3 * 100),
        ({"media_output": True}, 10 * 100 + 5 * 900),
        ({"image_input": 991}, (10 + 991) * 200 + 5 * 600),
    ],
)
def test_a_call_costs_at_most_what_its_dearest_classes_do(facts: dict[str, Any], most: int) -> None:
    beyond = (1000, Price(200, 600))
    price = Price(100, 400, 1, 125, reasoning=450, audio=900, image=800, audio_input=300, beyond=beyond)
    assert price.most(10, 5, **facts) == most


pico = st.integers(0, 10**9)
prices = st.builds(
    Price, pico, pico, cached_input=st.none() | pico, reasoning=st.none() | pico, image=st.none() | pico,
    cache_write_5m=st.none() | pico, cache_write_1h=st.none() | pico,
    beyond=st.none() | st.tuples(st.integers(1, 100), st.builds(Price, pico, pico, audio_input=st.none() | pico)),
)  # fmt: skip
usages = st.builds(Usage, *([st.integers(0, 60)] * 7), st.just(False), *([st.integers(0, 60)] * 3))


@given(prices, st.dictionaries(st.sampled_from(["a", "b", "c"]), prices, min_size=1), usages)
def test_no_known_tier_costs_more_than_the_dearest(usual: Price, tiers: dict[str, Price], usage: Usage) -> None:
    price = replace(usual, tiers=tiers)
    dearest = price.dearest().cost(usage)
    assert dearest >= price.cost(usage)
    assert all(dearest >= tier.cost(usage) for tier in tiers.values())
    unknown = Usage(usage.input_tokens, output_tokens=usage.output_tokens, service_tier="z")
    assert price.cost(unknown) == price.dearest().cost(Usage(usage.input_tokens, output_tokens=usage.output_tokens))


@given(prices)
def test_a_class_without_its_own_price_has_its_parents(price: Price) -> None:
    assert all(effective(price, name) >= 0 for name in CLASSES)


@pytest.mark.parametrize(
    "entry",
    [
        {"machine_hour_usd": 2, "service_tiers": {"flex": 0.5}},
        {"input": 1, "output": 1, "service_tiers": {"Fast": 2}},
        {"input": 1, "output": 1, "service_tiers": {"a b": 2}},
        {"input": 1, "output": 1, "service_tiers": {"fast": 0}},
        {"input": 1, "output": 1, "service_tiers": dict.fromkeys("abcde", 2)},
    ],
)
def test_tiers_that_cannot_be_meant_are_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PriceEntry.model_validate(entry)
