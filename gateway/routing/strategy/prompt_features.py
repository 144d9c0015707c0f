"""The prompt features that a strategy reads: probability of a good answer per model, and length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DIRECTIONS = 4
"""Ways in which prompts differ for the models; the others are mostly noise."""


@dataclass(frozen=True, slots=True)
class PromptFeatures:
    """Principal components of the models' adequacies and the logarithm of the length, each in standard deviations."""

    mean: tuple[float, ...]
    """m: of the models' adequacies."""
    directions: tuple[tuple[float, ...], ...]
    """r × m."""
    length: tuple[float, float]
    """Mean and standard deviation of the logarithm of 1 + characters."""

    def of(self, adequacies: Sequence[float], characters: int) -> tuple[float, ...]:
        """1, then 1 + r numbers. `adequacies` (m) in the order in which they were fitted."""
        mean, deviation = self.length
        off = [one - usual for one, usual in zip(adequacies, self.mean, strict=True)]
        parts = [sum(a * b for a, b in zip(direction, off, strict=True)) for direction in self.directions]
        return 1.0, (math.log1p(characters) - mean) / deviation, *parts

    def matrix(self, adequacies: Array, characters: Sequence[int]) -> Array:
        """The same for n prompts (n × m) at once: n × (2 + r)."""
        mean, deviation = self.length
        parts = (adequacies - np.array(self.mean)) @ np.array(self.directions).reshape(-1, len(self.mean)).T
        length = (np.log1p(np.asarray(characters, dtype=np.float64)) - mean) / deviation
        return np.column_stack([np.ones(len(length)), length, parts])


def fit_prompt_features(adequacies: Array, characters: Sequence[int]) -> PromptFeatures:
    """`adequacies`: n × m, of prompts that the classifier had not seen."""
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
