"""Weighted ridge regression on sparse rows, in NumPy alone, so that fitting needs no development extras."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Design:
    """Rows of sparse columns followed by dense ones; every column is centred under the row weights."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Array
    width: int
    """Number of sparse columns."""
    dense: Array
    """n × d."""

    def times(self, vector: Array) -> Array:
        sparse = np.bincount(self.rows, self.values * vector[self.columns], minlength=len(self.dense))
        product: Array = sparse + self.dense @ vector[self.width :]
        return product

    def transposed_times(self, vector: Array) -> Array:
        sparse = np.bincount(self.columns, self.values * vector[self.rows], minlength=self.width)
        return np.concatenate([sparse, self.dense.T @ vector])


def solve(
    design: Design, target: Array, weights: Array, penalty: float, *, tolerance: float = 1e-3, most_steps: int = 200
) -> tuple[Array, float]:
    """Coefficients and intercept that minimise Σ w (y − Xb − c)² + penalty |b|², by conjugate gradients."""
    total = weights.sum()
    means = design.transposed_times(weights) / total
    level = float(weights @ target / total)

    def normal(vector: Array) -> Array:
        residual = weights * (design.times(vector) - means @ vector)
        image: Array = design.transposed_times(residual) - means * residual.sum() + penalty * vector
        return image

    pull = weights * (target - level)
    right = design.transposed_times(pull) - means * pull.sum()
    solution = np.zeros_like(right)
    residual = right.copy()
    direction = residual.copy()
    size = residual @ residual
    goal = tolerance**2 * size
    for _ in range(most_steps):
        if size <= goal:
            break
        image = normal(direction)
        step = size / (direction @ image)
        solution += step * direction
        residual -= step * image
        before, size = size, residual @ residual
        direction = residual + (size / before) * direction
    return solution, level - float(means @ solution)


def logistic(scores: Array, outcomes: Array, weights: Array) -> tuple[float, float]:
    """Intercept and slope of P(outcome = 1 | score), by bounded Newton steps; a rising slope is held at 0.

    A touch of shrinkage keeps them finite where the scores separate the outcomes, or all outcomes are the same.
    """
    shrinkage = 1e-4 * weights.sum()
    columns = np.column_stack([np.ones(len(scores)), scores])
    curve = np.zeros(2)
    for _ in range(100):
        chance = 1 / (1 + np.exp(-(columns @ curve).clip(-30, 30)))
        gradient = columns.T @ (weights * (outcomes - chance)) - shrinkage * curve
        curvature = columns.T @ (columns * (weights * chance * (1 - chance))[:, None]) + shrinkage * np.eye(2)
        move = np.linalg.solve(curvature, gradient).clip(-1, 1)
        curve = curve + move
        if np.abs(move).max() < 1e-9:
            break
    if curve[1] > 0:
        return logistic(np.zeros(len(scores)), outcomes, weights)
    return float(curve[0]), float(curve[1])
