"""What a team's judged answers say about a backend, and how that adjusts a prior probability.

A prior is wrong by a shift in log-odds (Platt 1999, "Probabilistic outputs for support vector machines", with the slope
kept): adequacy = sigmoid(logit(prior) + shift).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_LEAST, _MOST = 0.001, 0.99
"""Priors are clipped to this range before the shift: 1 means "equal by definition", which evidence may contradict."""


@dataclass(frozen=True, slots=True)
class Learned:
    shift: float = 0.0
    """Shift in log-odds."""
    n: float = 0.0
    """Effective number of judged answers; lower than the actual number, because old answers count less."""
    margin: float = 0.0
    """0..1: the share of the distance from the policy's quality to 1 by which this backend must exceed that quality.
    Above 0 only while its measured quality is below target with confidence."""

    def adequacy(self, prior: float) -> float:
        """`prior` corrected by the evidence; unchanged without evidence."""
        if not self.n or (prior >= 1 and self.shift >= 0):
            return prior
        return sigmoid(logit(prior) + self.shift)

    def prior(self, adequacy: float) -> float:
        """The inverse of `adequacy`, except where that was clipped."""
        return adequacy if not self.n else sigmoid(logit(adequacy) - self.shift)

    def quality(self, wanted: float) -> float:
        """The quality that this backend must reach where `wanted` is required of the choice."""
        return wanted + self.margin * (1 - wanted)


NOTHING = Learned()
"""For a backend without judged answers."""


def logit(probability: float) -> float:
    kept = min(max(probability, _LEAST), _MOST)
    return math.log(kept / (1 - kept))


def sigmoid(log_odds: float) -> float:
    if log_odds < 0:
        odds = math.exp(log_odds)
        return odds / (1 + odds)
    return 1 / (1 + math.exp(-log_odds))
