"""The pressure is nothing within plan, grows smoothly ahead of it, and is bounded, as what it does to quality is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.money.pacing import lowered, pressure

WINDOW = (1000.0, 2000.0)


@pytest.mark.parametrize(
    ("spent", "now", "expected"),
    [
        (0, 1500, 0.0),
        (50, 1500, 0.0),
        (55, 1500, 0.5),
        (60, 1500, 1.0),
        (100, 1500, 1.0),
        (1, 1000, 0.1),
        (100, 1999, 0.01),
        (50, 2000, 0.0),
        (50, 999, 0.0),
    ],
)
def test_it_grows_with_what_is_spent_ahead_of_plan(spent: int, now: float, expected: float) -> None:
    assert pressure(spent, 100, WINDOW, now, 0.1) == pytest.approx(expected, abs=1e-9)


def test_a_budget_without_an_end_has_no_plan() -> None:
    assert pressure(99, 100, (0.0, math.inf), 1e9, 0.1) == 0.0
    assert pressure(1, 0, WINDOW, 1500, 0.1) == 0.0


@given(
    st.floats(0, 1e9),
    st.floats(1, 1e9),
    st.floats(0, 3000),
    st.floats(0.001, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_nothing_is_ever_out_of_bounds(
    spent: float, limit: float, now: float, tolerance: float, quality: float, floor: float
) -> None:
    pressed = pressure(spent, limit, WINDOW, now, tolerance)
    assert 0 <= pressed <= 1
    assert pressed <= pressure(spent * 2 + 1, limit, WINDOW, now, tolerance)
    assert min(quality, floor) - 1e-12 <= lowered(quality, pressed, floor) <= quality
    assert lowered(quality, 0.0, floor) == quality
