"""A budget ahead of its plan makes a cheaper backend good enough, within bounds, and without that nothing changes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.routing.route import ContextEstimate, Route
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from tests.routing.conftest import EASY, HARD, HOSTED, LARGE, SMALL, Fleet, request, tenant

TWO: dict[str, Any] = {"auto": {"candidates": ["small", "large"], "quality": 1.0}}
PROMPTS = [EASY, HARD, "What is the capital of France?", "Write a regular expression for dates and explain it."]


def routes(
    grader: Grader, catalogue: PriceBook, pressure: float | None, models: dict[str, Any] = TWO, **pacing: Any
) -> list[Route]:
    pressures = {} if pressure is None else {"search": pressure, "other": 1.0}
    router = Router(lambda: grader, catalogue, Fleet(), [SMALL, LARGE, HOSTED], pressures=pressures)
    who = tenant(models=models, pacing=pacing)
    return [router.decide(request(text), who, ContextEstimate(50, 50)) for text in PROMPTS]


@pytest.mark.parametrize(("pressure", "pacing"), [(None, {"enabled": True}), (0.0, {"enabled": True}), (1.0, {})])
def test_without_pressure_or_pacing_nothing_changes(
    grader: Grader, catalogue: PriceBook, pressure: float | None, pacing: dict[str, Any]
) -> None:
    assert routes(grader, catalogue, pressure, **pacing) == routes(grader, catalogue, None)


def test_under_pressure_what_was_not_good_enough_is(grader: Grader, catalogue: PriceBook) -> None:
    (calm, *_), (pressed, *_) = (
        routes(grader, catalogue, pressure, enabled=True, floor=0.5) for pressure in (0.0, 1.0)
    )
    assert (calm.backends[0], calm.quality, calm.pressure) == (LARGE, 1.0, 0.0)
    assert (pressed.backends[0], pressed.quality, pressed.pressure) == (SMALL, 0.5, 1.0)


def test_the_more_pressure_the_more_goes_to_what_is_cheaper(grader: Grader, catalogue: PriceBook) -> None:
    small = [
        sum(route.backends[0] is SMALL for route in routes(grader, catalogue, step / 10, enabled=True, floor=0.0))
        for step in range(11)
    ]
    assert small == sorted(small)
    assert small[0] < small[-1]


def test_the_floor_holds_and_a_quality_below_it_stays(grader: Grader, catalogue: PriceBook) -> None:
    assert {route.quality for route in routes(grader, catalogue, 1.0, enabled=True, floor=0.9)} == {0.9}
    low = {"auto": {**TWO["auto"], "quality": 0.7}}
    assert {route.quality for route in routes(grader, catalogue, 1.0, low, enabled=True, floor=0.9)} == {0.7}
