"""Scores a text from its features, with a general scorer and experts for kinds of text that were measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gateway.routing.difficulty.features import Features, Floats

CLIP = np.float32(3.0)
"""Number of standard deviations to which lexical counts are limited, in both directions."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """score = shared(x) + Σ gate(x) · expert(x). All are linear in the features; gates are limited to 0..1.

    An expert orders the prompts of one kind. Its gate estimates how much a text belongs to that kind (a mixture of
    experts, Jacobs et al. 1991, with linear gates).
    """

    weights: Floats
    """Weights, bins × (1 + k): the shared scorer, then k experts. One row per bin, because a text needs all weights of
    a bin."""
    idf: Floats
    lexical_mean: Floats
    lexical_deviation: Floats
    lexical_weights: Floats
    """Weights per standard deviation, (1 + k) × 46."""
    intercepts: Floats
    """Intercepts of the shared scorer and the k experts, 1 + k."""
    gates: Floats
    """Gate weights per standard deviation, k × 46."""
    gate_intercepts: Floats
    """Gate intercepts, k."""

    def standard(self, lexical: Floats) -> Floats:
        """The lexical counts as standard deviations from the mean in training."""
        standard: Floats = (lexical - self.lexical_mean) / self.lexical_deviation
        return standard

    def score(self, features: Features) -> float:
        """Expected gain of the strong tier, minus about half the mean gain for prompts of the same kind."""
        weighted = features.counts * self.idf[features.bins]
        standard = self.standard(features.lexical).clip(-CLIP, CLIP)
        parts = self.intercepts + self.lexical_weights @ standard
        for block in (slice(0, features.word_bins), slice(features.word_bins, None)):
            length = np.sqrt(weighted[block] @ weighted[block])
            if length:
                parts = parts + weighted[block] @ self.weights[features.bins[block]] / length
        gates = (self.gate_intercepts + self.gates @ standard).clip(0, 1)
        return float(parts[0] + gates @ parts[1:])
