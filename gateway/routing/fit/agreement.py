"""Estimates the quality of an answer from the models that gave the same answer. Searches with few rows use this."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

DEPTH = 4
"""Maximum size of a set of models in the fit. Each model of a set gives one answer."""
SETS = 60
"""Maximum number of sets of models in the fit, for each number of answers."""
RIDGE = 2.0
TRUST = 4.0
"""Total weight of all rows that come from one prompt."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """A logistic regression of an answer's quality, from the skill of its model and the skills of the other models that
    answered."""

    skills: Array
    """For each of m models, the log odds of its mean quality."""
    weights: Array
    mean: Array
    deviation: Array

    def of(self, labels: Labels, asked: tuple[int, ...]) -> Array:
        """The expected quality of each answer, shape (n prompts, `len(asked)`). `labels`: shape (n, m models); equal
        answers have equal labels, and −1 means no vote. `asked`: indexes of the models that answered."""
        columns = (_columns(labels, asked, self.skills) - self.mean) / self.deviation
        return np.asarray(1 / (1 + np.exp(-(columns @ self.weights).clip(-30, 30))))


def fit_agreement(labels: Labels, quality: Array, known: NDArray[np.bool_], *, seed: int = 0) -> Agreement:
    """Fit an `Agreement` to random sets of up to `DEPTH` models. `labels`, `quality`, `known`: arrays of n prompts × m
    models. `known`: whether the quality of the answer is known."""
    count = quality.shape[1]
    level = (np.where(known, quality, 0).sum(0) / np.maximum(known.sum(0), 1)).clip(0.02, 0.98)
    skills = np.log(level / (1 - level))
    chance = np.random.default_rng(seed)
    columns, targets, weights = [], [], []
    for size in range(1, min(DEPTH, count) + 1):
        sets = list(itertools.combinations(range(count), size))
        for place in chance.permutation(len(sets))[:SETS].tolist():
            asked = sets[place]
            rows = known[:, asked]
            columns.append(_columns(labels, asked, skills)[rows])
            targets.append(quality[:, asked][rows])
            weights.append(np.full(int(rows.sum()), 1 / (size * min(SETS, len(sets)))))
    design, target, weight = np.concatenate(columns), np.concatenate(targets), np.concatenate(weights)
    weight *= TRUST * len(labels) / weight.sum()  # rows of one prompt are not independent
    mean, deviation = design.mean(0), design.std(0) + 1e-9
    mean[0], deviation[0] = 0.0, 1.0
    return Agreement(skills, _logistic((design - mean) / deviation, target, weight), mean, deviation)


def _columns(labels: Labels, asked: tuple[int, ...], skills: Array) -> Array:
    """The features of each answer, shape (n prompts, `len(asked)`, f). They are the skill of the answer's model, the
    number and skills of the models that agree with it, and the number and skills of the models that do not.
    `labels`: shape (n, m); `skills`: shape (m,)."""
    votes = labels[:, asked]
    skill = np.broadcast_to(skills[list(asked)], votes.shape)
    voted = votes >= 0
    same = (votes[:, :, None] == votes[:, None, :]) & voted[:, :, None]
    others = voted[:, None, :] & ~same
    size = same.sum(2)
    together = np.where(voted, (same * skill[:, None, :]).sum(2), skill)
    rival = np.where(others, size[:, None, :], 0).max(2)
    silent = (~voted).sum(1, keepdims=True) - ~voted
    return np.stack(
        [
            np.ones(votes.shape),
            ~voted,
            skill,
            together,
            np.where(voted, np.where(same, skill[:, None, :], -9.0).max(2), skill),
            size >= 2,
            size >= 3,
            size >= 4,
            np.maximum(size - 1, 0),
            (others * skill[:, None, :]).sum(2),
            np.where(others, skill[:, None, :], -3.0).max(2),
            np.where(others, together[:, None, :], -3.0).max(2),
            others.sum(2),
            rival >= 2,
            rival >= 3,
            silent,
            (size >= 2) & ~others.any(2),
            (size >= 3) & ~others.any(2),
        ],
        axis=2,
    ).astype(np.float64)


def _logistic(columns: Array, target: Array, weight: Array) -> Array:
    """Fit a logistic regression with a ridge penalty by Newton's method. The first column is the intercept."""
    penalty = np.full(columns.shape[1], RIDGE)
    penalty[0] = 1e-3
    found = np.zeros(columns.shape[1])
    for _ in range(25):
        chance = 1 / (1 + np.exp(-(columns @ found).clip(-30, 30)))
        gradient = columns.T @ (weight * (target - chance)) - penalty * found
        curvature = (columns * (weight * chance * (1 - chance) + 1e-9)[:, None]).T @ columns + np.diag(penalty)
        move = np.linalg.solve(curvature, gradient).clip(-3, 3)
        found = found + move
        if np.abs(move).max() < 1e-5:
            break
    return found
