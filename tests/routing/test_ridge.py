from __future__ import annotations

import numpy as np

from gateway.routing.ridge import Design, logistic, solve


def test_conjugate_gradients_find_the_closed_solution() -> None:
    chance = np.random.default_rng(1)
    whole = chance.normal(size=(60, 9)) * (chance.random((60, 9)) < 0.5)
    whole[:, 6:] = chance.normal(size=(60, 3))
    rows, columns = np.nonzero(whole[:, :6])
    design = Design(rows, columns, whole[rows, columns], 6, whole[:, 6:])
    target, weights = chance.normal(size=60), chance.random(60) + 0.1

    found, intercept = solve(design, target, weights, 2.0, tolerance=1e-10)

    means, level = weights @ whole / weights.sum(), weights @ target / weights.sum()
    centred = whole - means
    wanted = np.linalg.solve(
        centred.T @ (weights[:, None] * centred) + 2.0 * np.eye(9), centred.T @ (weights * (target - level))
    )
    assert np.allclose(found, wanted, atol=1e-7)
    assert np.isclose(intercept, level - means @ wanted)


def test_rows_of_weight_zero_do_not_count() -> None:
    design = Design(np.array([0, 1, 2]), np.array([0, 0, 0]), np.array([1.0, 2.0, 50.0]), 1, np.zeros((3, 0)))
    found, _ = solve(design, np.array([1.0, 2.0, -99.0]), np.array([1.0, 1.0, 0.0]), 1e-9, tolerance=1e-10)
    assert np.isclose(found[0], 1.0)


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
