"""Ridge regression on sparse rows, and logistic curves. Uses NumPy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
Places = NDArray[np.int64]

_CHUNK = 4_000_000
"""Maximum number of products that are in memory at one time (16 MB)."""


@dataclass(frozen=True, slots=True)
class Design:
    """A matrix with n rows. Its first columns are sparse, the other columns dense."""

    by_row: tuple[Places, Places, Floats]
    """The sparse part by rows: the start of each row (n + 1 numbers), the columns, and the values."""
    by_column: tuple[Places, Places, Floats]
    """The sparse part by columns: the start of each column (one number more than columns), the rows, and the values."""
    dense: Floats
    """The dense columns, an array of n rows × d columns."""

    @classmethod
    def of(cls, rows: Places, columns: Places, values: Floats, width: int, dense: Floats) -> Design:
        """Build the matrix from its sparse and dense entries. `rows`, `columns`, `values`: the sparse entries; `rows`
        must ascend. `width`: number of sparse columns."""
        order = np.argsort(columns, kind="stable")
        return cls(
            (_begins(rows, len(dense)), columns, values),
            (_begins(columns[order], width), rows[order], values[order]),
            dense,
        )

    def part(self, chosen: NDArray[np.bool_]) -> Design:
        """The matrix with only the rows selected by the mask `chosen`."""
        begins, columns, values = self.by_row
        sizes = np.diff(begins)
        inside = np.repeat(chosen, sizes)
        rows = np.repeat(np.arange(int(chosen.sum())), sizes[chosen])
        return Design.of(rows, columns[inside], values[inside], len(self.by_column[0]) - 1, self.dense[chosen])

    def times(self, vectors: Floats) -> Floats:
        """The product of the matrix and `vectors`: (n, d) · (d, k) → (n, k). The first rows of `vectors` belong to the
        sparse columns."""
        width = len(self.by_column[0]) - 1
        product: Floats = _gather(*self.by_row, vectors[:width]) + self.dense @ vectors[width:]
        return product

    def transposed_times(self, vectors: Floats) -> Floats:
        """The product of the transposed matrix and `vectors`: (d, n) · (n, k) → (d, k). The first rows of the result
        belong to the sparse columns."""
        return np.concatenate([_gather(*self.by_column, vectors), self.dense.T @ vectors])


def _begins(ascending: Places, count: int) -> Places:
    begins: Places = np.searchsorted(ascending, np.arange(count + 1))
    return begins


def _gather(begins: Places, places: Places, values: Floats, vectors: Floats) -> Floats:
    """Sum for each row i the products values · vectors[places] over the range from begins[i] to begins[i + 1]."""
    total = np.zeros((len(begins) - 1, vectors.shape[1]), dtype=np.float32)
    most = _CHUNK // max(vectors.shape[1], 1)
    first = 0
    while first < len(total):
        last = max(int(np.searchsorted(begins, begins[first] + most, side="right")) - 1, first + 1)
        stretch = slice(int(begins[first]), int(begins[last]))
        products = vectors[places[stretch]] * values[stretch, None]
        held = np.flatnonzero(begins[first + 1 : last + 1] > begins[first:last])
        if len(held):
            total[first + held] = np.add.reduceat(products, begins[first + held] - begins[first], axis=0)
        first = last
    return total


def solve(
    design: Design, targets: Floats, weights: Floats, penalty: float, *, tolerance: float = 3e-3, most_steps: int = 60
) -> tuple[Floats, Floats]:
    """Solve a weighted ridge regression for several target columns: minimise Σᵢ wᵢₖ (yᵢₖ − xᵢ·b − c)² + penalty |b|²
    for each column k. `targets` (y), `weights` (w): shape (n, k). A row with weight 0 is ignored.

    Returns the coefficients b, shape (d, k), and the intercepts c, shape (k,). Method: conjugate gradients (Hestenes
    and Stiefel 1952).
    """
    total = np.maximum(weights.sum(0), 1e-9)
    level = (weights * targets).sum(0) / total
    means = design.transposed_times(weights) / total

    def back(residual: Floats) -> Floats:
        image: Floats = design.transposed_times(residual) - means * residual.sum(0)
        return image

    def normal(vectors: Floats) -> Floats:
        centred = weights * (design.times(vectors) - (means * vectors).sum(0))
        return back(centred) + np.float32(penalty) * vectors

    residual = back(weights * (targets - level))
    solution = np.zeros_like(residual)
    direction = residual.copy()
    size = (residual**2).sum(0)
    goal = tolerance**2 * size
    for _ in range(most_steps):
        if (size <= goal).all():
            break
        image = normal(direction)
        step = size / np.maximum((direction * image).sum(0), 1e-30)
        solution += step * direction
        residual -= step * image
        before, size = size, (residual**2).sum(0)
        direction = residual + (size / np.maximum(before, 1e-30)) * direction
    return solution, level - (means * solution).sum(0)


def logistic(scores: Array, outcomes: Array, weights: Array) -> tuple[float, float]:
    """Fit a logistic curve P(outcome = 1 | score). Returns its intercept and its slope (at most 0), which are always
    finite. `scores`, `outcomes`, `weights`: shape (n,)."""
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
