from __future__ import annotations

import numpy as np
import pytest

from gateway.routing.difficulty.ridge import Array, Design, logistic, solve


def _design(chance: np.random.Generator) -> tuple[Design, Array]:
    """Six sparse columns, of which one is empty, and three dense ones; some rows are empty on the sparse side."""
    whole = chance.normal(size=(60, 9)) * (chance.random((60, 9)) < 0.5)
    whole[:, 4] = 0
    whole[[0, 30, 59], :6] = 0
    whole[:, 6:] = chance.normal(size=(60, 3))
    rows, columns = np.nonzero(whole[:, :6])
    values = whole[rows, columns].astype(np.float32)
    return Design.of(rows, columns, values, 6, whole[:, 6:].astype(np.float32)), whole


@pytest.mark.parametrize("columns", [5, 100_000])  # of so many columns, a few rows are multiplied at a time
def test_products_are_those_of_the_whole_matrix(columns: int) -> None:
    chance = np.random.default_rng(4)
    design, whole = _design(chance)
    whole = whole.astype(np.float32)
    right, left = (chance.standard_normal((size, 5), np.float32).repeat(columns // 5, 1) for size in (9, 60))
    assert np.allclose(design.times(right), whole @ right, atol=1e-5)
    assert np.allclose(design.transposed_times(left), whole.T @ left, atol=1e-5)
    chosen = chance.random(60) < 0.4
    assert np.allclose(design.part(chosen).times(right), whole[chosen] @ right, atol=1e-5)


def test_no_columns_to_multiply_are_no_error() -> None:
    design, _ = _design(np.random.default_rng(4))
    assert design.times(np.zeros((9, 0), np.float32)).shape == (60, 0)


def test_each_column_finds_its_own_closed_solution() -> None:
    chance = np.random.default_rng(1)
    design, whole = _design(chance)
    targets = chance.normal(size=(60, 2)).astype(np.float32)
    weights = (chance.random((60, 2)) + 0.1).astype(np.float32)
    weights[:20, 1] = 0

    found, intercepts = solve(design, targets, weights, 2.0, tolerance=1e-6)

    for each in range(2):
        weight, target = weights[:, each].astype(float), targets[:, each].astype(float)
        means, level = weight @ whole / weight.sum(), weight @ target / weight.sum()
        centred = whole - means
        wanted = np.linalg.solve(
            centred.T @ (weight[:, None] * centred) + 2.0 * np.eye(9), centred.T @ (weight * (target - level))
        )
        assert np.allclose(found[:, each], wanted, atol=1e-4)
        assert np.isclose(intercepts[each], level - means @ wanted, atol=1e-4)


def test_rows_of_weight_zero_do_not_count() -> None:
    values = np.array([1.0, 2.0, 50.0], np.float32)
    design = Design.of(np.array([0, 1, 2]), np.array([0, 0, 0]), values, 1, np.zeros((3, 0), np.float32))
    targets = np.array([[1.0], [2.0], [-99.0]], np.float32)
    found, _ = solve(design, targets, np.array([[1.0], [1.0], [0.0]], np.float32), 1e-6, tolerance=1e-6)
    assert np.isclose(found[0, 0], 1.0, atol=1e-3)


def test_a_logistic_curve_is_recovered() -> None:
    chance = np.random.default_rng(2)
    scores = chance.normal(size=20000)
    outcomes = (chance.random(20000) < 1 / (1 + np.exp(-(1.0 - 0.7 * scores)))).astype(float)
    intercept, slope = logistic(scores, outcomes, np.ones(20000))
    assert abs(intercept - 1.0) < 0.06
    assert abs(slope + 0.7) < 0.06


def test_a_rising_curve_is_held_level() -> None:
    scores = np.linspace(-1, 1, 200)
    intercept, slope = logistic(scores, (scores > -0.5).astype(float), np.ones(200))
    assert slope == 0
    assert np.isclose(1 / (1 + np.exp(-intercept)), 0.75, atol=0.001)


def test_one_outcome_alone_gives_a_finite_curve() -> None:
    intercept, slope = logistic(np.linspace(-1, 1, 50), np.ones(50), np.ones(50))
    assert np.isfinite([intercept, slope]).all()
