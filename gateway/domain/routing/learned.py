"""Corrects an assumed (prior) probability of a good answer by the evidence from a team's judged answers.

The error of the prior is assumed to be a shift in log-odds (Platt 1999, "Probabilistic outputs for support vector
machines", with the slope kept): adequacy = sigmoid(logit(prior) + shift).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_LEAST, _MOST = 0.001, 0.99
"""Limits of a prior before the shift is added. A prior of 1 means "equal by definition", and evidence may contradict
that."""


@dataclass(frozen=True, slots=True)
class Learned:
    shift: float = 0.0
    """Shift of the log-odds."""
    n: float = 0.0
    """Effective number of judged answers. It is lower than the actual number, because older answers count less."""
    margin: float = 0.0
    """Determines the quality that is required of this backend, 0..1. If the policy requires the quality q, this backend
    must reach q + `margin` · (1 − q). The margin is above 0 only while measurements show with confidence that the
    backend's quality is below the target."""

    def adequacy(self, prior: float) -> float:
        """The probability that an answer is as good as the reference's, after the correction by evidence. `prior`: this
        probability before the correction."""
        if not self.n or (prior >= 1 and self.shift >= 0):
            return prior
        return sigmoid(logit(prior) + self.shift)

    def prior(self, adequacy: float) -> float:
        """The inverse of `adequacy`: compute the probability before the correction from the corrected probability. The
        result is exact only for probabilities from `_LEAST` to `_MOST`.
        """
        return adequacy if not self.n else sigmoid(logit(adequacy) - self.shift)

    def quality(self, wanted: float) -> float:
        """The quality that this backend must reach, if routing requires the quality `wanted`."""
        return wanted + self.margin * (1 - wanted)


NOTHING = Learned()
"""The evidence about a backend without judged answers."""


def logit(probability: float) -> float:
    kept = min(max(probability, _LEAST), _MOST)
    return math.log(kept / (1 - kept))


def sigmoid(log_odds: float) -> float:
    if log_odds < 0:
        odds = math.exp(log_odds)
        return odds / (1 + odds)
    return 1 / (1 + math.exp(-log_odds))
