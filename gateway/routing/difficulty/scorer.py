"""Scores a text from its features, with a general scorer and experts for measured kinds of text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gateway.routing.difficulty.features import Features, Floats

CLIP = np.float32(3.0)
"""Lexical counts are limited to so many standard deviations in both directions."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """score = shared(x) + Σ gate(x) · expert(x), all linear in the features, gates limited to 0..1.

    An expert orders the prompts of one kind; its gate estimates how much a text is of that kind (a mixture of experts,
    Jacobs et al. 1991, with linear gates).
    """

    weights: Floats
    """bins × (1 + k): the shared scorer, then k experts. One row per bin, because a text needs all weights of a bin."""
    idf: Floats
    lexical_mean: Floats
    lexical_deviation: Floats
    lexical_weights: Floats
    """(1 + k) × 46, per standard deviation."""
    intercepts: Floats
    """1 + k."""
    gates: Floats
    """k × 46, per standard deviation."""
    gate_intercepts: Floats
    """k."""

    def standard(self, lexical: Floats) -> Floats:
        """Lexical counts in standard deviations from training's mean."""
        standard: Floats = (lexical - self.lexical_mean) / self.lexical_deviation
        return standard

    def score(self, features: Features) -> float:
        """Expected gain of the strong tier, minus about half the mean gain of the prompt's kind."""
        weighted = features.counts * self.idf[features.bins]
        standard = self.standard(features.lexical).clip(-CLIP, CLIP)
        parts = self.intercepts + self.lexical_weights @ standard
        for block in (slice(0, features.word_bins), slice(features.word_bins, None)):
            length = np.sqrt(weighted[block] @ weighted[block])
            if length:
                parts = parts + weighted[block] @ self.weights[features.bins[block]] / length
        gates = (self.gate_intercepts + self.gates @ standard).clip(0, 1)
        return float(parts[0] + gates @ parts[1:])
