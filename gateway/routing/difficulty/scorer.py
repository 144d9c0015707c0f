"""Scores a text from its features, with a general scorer and with experts for the kinds of text in the training
data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gateway.routing.difficulty.features import Features, Floats

Steps = NDArray[np.int8]

CLIP = np.float32(3.0)
"""Number of standard deviations to which lexical counts are limited, in both directions."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """Computes the score of a text with features x: shared(x) + Σ gate(x) · expert(x). All parts are linear, and each
    gate is limited to 0..1. Source: mixture of experts, Jacobs et al. 1991."""

    weights: Floats | Steps
    """Weights of the n-gram bins, in units of `unit`: one row per bin, one column for the shared scorer and one for
    each of k experts. All weights of a bin are in one row, because a text that has the bin needs all of them. The
    weights of a file stay in one byte each, because a worker would need four times the memory for them otherwise."""
    idf: Floats
    lexical_mean: Floats
    lexical_deviation: Floats
    lexical_weights: Floats
    """Weights of the 46 lexical counts, in score per standard deviation. One row for the shared scorer and one for each
    of k experts."""
    intercepts: Floats
    """Intercepts: one of the shared scorer, then one of each of k experts."""
    gates: Floats
    """Weights of the 46 lexical counts in the gates, per standard deviation. One row for each of k experts."""
    gate_intercepts: Floats
    """Intercepts of the gates of k experts."""
    unit: Floats = field(default_factory=lambda: np.ones(1, np.float32))
    """The weight that 1 in `weights` stands for: one for each column, or one for all."""

    def standard(self, lexical: Floats) -> Floats:
        """The lexical counts, standardised with the mean and the standard deviation of the training prompts."""
        standard: Floats = (lexical - self.lexical_mean) / self.lexical_deviation
        return standard

    def score(self, features: Features) -> float:
        """The raw score of difficulty. It is the expected quality of the strong tier minus the expected quality of the
        weak tier, minus half of the mean difference for prompts of this kind."""
        weighted = features.counts * self.idf[features.bins]
        standard = self.standard(features.lexical).clip(-CLIP, CLIP)
        parts = self.intercepts + self.lexical_weights @ standard
        for block in (slice(0, features.word_bins), slice(features.word_bins, None)):
            length = np.sqrt(weighted[block] @ weighted[block])
            if length:
                parts = parts + weighted[block] @ (self.weights[features.bins[block]] * self.unit) / length
        gates = (self.gate_intercepts + self.gates @ standard).clip(0, 1)
        return float(parts[0] + gates @ parts[1:])
