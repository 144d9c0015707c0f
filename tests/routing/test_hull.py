"""The hull of points, and draws between neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.routing.strategy.hull import between, corners, cost_of


def test_only_points_that_no_draw_between_two_others_beats_are_corners() -> None:
    usd, quality = [1.0, 2.0, 3.0, 2.5, 4.0], [0.5, 0.8, 0.9, 0.7, 0.9]
    assert corners(usd, quality) == [0, 1, 2]


def test_a_dear_point_that_is_no_better_is_no_corner() -> None:
    assert corners([1.0, 2.0], [0.9, 0.9]) == [0]


@pytest.mark.parametrize(
    ("target", "wanted"),
    [(0.1, (0, 0, 0.0)), (0.65, (0, 1, 0.5)), (0.8, (0, 1, 1.0)), (0.85, (1, 2, 0.5)), (0.99, (2, 2, 0.0))],
)
def test_a_target_lies_between_two_neighbours(target: float, wanted: tuple[int, int, float]) -> None:
    low, high, share = between([0.5, 0.8, 0.9], target)
    assert (low, high) == wanted[:2]
    assert share == pytest.approx(wanted[2])


def test_a_draw_costs_what_its_shares_cost() -> None:
    assert cost_of(0.65, np.array([1.0, 2.0]), np.array([0.5, 0.8])) == pytest.approx(1.5)
