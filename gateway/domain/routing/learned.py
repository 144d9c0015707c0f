"""Evidence from a team's judged answers about a backend, and the correction of a prior probability by it.

The error of a prior is assumed to be a shift in log-odds (Platt 1999, "Probabilistic outputs for support vector
machines", with the slope kept): adequacy = sigmoid(logit(prior) + shift).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_LEAST, _MOST = 0.001, 0.99
"""Range to which priors are limited before the shift. A prior of 1 means "equal by definition", which evidence may
contradict."""


@dataclass(frozen=True, slots=True)
class Learned:
    shift: float = 0.0
    """Shift in log-odds."""
    n: float = 0.0
    """Effective number of judged answers. It is lower than the actual number, because old answers count less."""
    margin: float = 0.0
    """By how much this backend must exceed the policy's quality, as a share (0..1) of the distance from that quality to
    1. Above 0 only while its measured quality is below target with confidence."""

    def adequacy(self, prior: float) -> float:
        """`prior`, corrected by the evidence. Without evidence, it is unchanged."""
        if not self.n or (prior >= 1 and self.shift >= 0):
            return prior
        return sigmoid(logit(prior) + self.shift)

    def prior(self, adequacy: float) -> float:
        """The inverse of `adequacy`, except where the prior was limited."""
        return adequacy if not self.n else sigmoid(logit(adequacy) - self.shift)

    def quality(self, wanted: float) -> float:
        """The quality that this backend must reach if `wanted` is required of the choice."""
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
