"""Computes the features of a prompt that strategies use, from each model's probability of a good answer and from the
prompt's length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DIRECTIONS = 4
"""Number of principal components that are used. Further components are mostly noise."""


@dataclass(frozen=True, slots=True)
class PromptFeatures:
    """Computes the features of a prompt for the strategies of a plan, in standard deviations. They are the log of the
    length, and principal components of the models' adequacies (probabilities of a good answer)."""

    mean: tuple[float, ...]
    """Mean adequacy of each of m models."""
    directions: tuple[tuple[float, ...], ...]
    """The principal components, r components × m models."""
    length: tuple[float, float]
    """Mean and standard deviation of log(1 + characters of the prompt)."""

    def of(self, adequacies: Sequence[float], characters: int) -> tuple[float, ...]:
        """The features of a prompt: 1, the length, then r components. `adequacies`: the m models' probabilities of a
        good answer, in the same order as in the fit."""
        mean, deviation = self.length
        off = [one - usual for one, usual in zip(adequacies, self.mean, strict=True)]
        parts = [sum(a * b for a, b in zip(direction, off, strict=True)) for direction in self.directions]
        return 1.0, (math.log1p(characters) - mean) / deviation, *parts

    def matrix(self, adequacies: Array, characters: Sequence[int]) -> Array:
        """The features of n prompts, n × (2 + r). `adequacies`: probabilities of good answers, n prompts × m models."""
        mean, deviation = self.length
        parts = (adequacies - np.array(self.mean)) @ np.array(self.directions).reshape(-1, len(self.mean)).T
        length = (np.log1p(np.asarray(characters, dtype=np.float64)) - mean) / deviation
        return np.column_stack([np.ones(len(length)), length, parts])


def fit_prompt_features(adequacies: Array, characters: Sequence[int]) -> PromptFeatures:
    """Fit on n prompts that were not used to train the classifier. `adequacies`: probabilities of a good answer, n × m
    models."""
    length = np.log1p(np.asarray(characters, dtype=np.float64))
    mean = adequacies.mean(0)
    _, size, directions = np.linalg.svd(adequacies - mean, full_matrices=False)
    spread = size / math.sqrt(len(adequacies))
    kept = [place for place in range(min(DIRECTIONS, len(size))) if spread[place] > 1e-3]
    return PromptFeatures(
        tuple(mean.tolist()),
        tuple(tuple((directions[place] / spread[place]).tolist()) for place in kept),
        (float(length.mean()), float(length.std()) or 1.0),
    )
