"""The statistics of one backend's judged answers for one team. Works without I/O.

Calibration: the shift in log-odds that maximises the likelihood of the scores under a normal prior of standard
deviation TAU (ridge regression; Hoerl and Kennard 1970). Older answers count less.

Detection: a betting test of the statement "the mean score is at least the target minus TOLERANCE". The test has a
number, the wealth. Each answer multiplies the wealth by 1 + bet (target - score). While the statement is true, the
wealth does not grow on average (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
betting"). The wealth is averaged over several bets.

A new test begins at every answer. Together, these tests detect a change: on average, at least ALARM answers pass
before a false alarm (Shin, Ramdas and Rinaldo 2024, "E-detectors"). This is valid for scores of any distribution in
0..1, and the result may be read after every answer. After an alarm, the answers before the estimated change are
ignored.

Intervals are Wilson's score intervals (1927), one-sided at 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from gateway.domain.routing.learned import Learned, logit, sigmoid

TAU = 0.8
"""Standard deviation, in log-odds, of the difference between a team's adequacies and the assumed (prior) ones. An
adequacy is the probability that an answer is as good as the reference's. How this number was measured is described in
docs/explanation/learning.md."""
TOLERANCE = 0.03
ALARM = 1000.0
_BETS = (0.5, 1.0, 2.0, 4.0, 8.0)
_SAFE = 0.95
"""Maximum bet, as a share of the largest bet that cannot lose all wealth."""
_HALF_LIFE, _HALF_LIFE_ALARMED = 150, 25
"""Number of later answers after which the weight of an answer has fallen to one half. The second number applies while
an alarm lasts."""
_LEAST_TO_END = 10.0
"""An alarm may end only after this number of judged answers since the change of quality."""
_STEPS = 12
_MOST_TARGET = 0.999
_Z = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True, slots=True)
class Judged:
    """One judged answer of a backend. `predicted`: the probability that it is as good as the reference's answer, before
    any correction by evidence."""

    id: int
    predicted: float
    target: float
    """The quality that routing promised: the policy's quality, or the expected adequacy if that is lower."""
    score: float
    """How good the answer is, 0..1. On this scale, the reference's answers have the mean score `baseline`."""
    weight: float = 1.0
    at: float = 0.0
    """Time of the judgement in Unix seconds."""
    baseline: float = 1.0
    """The mean score of the reference's answers on the same scale. It is 1 if the answer was compared with the
    reference's answer."""

    @property
    def relative(self) -> float:
        """The score as a comparison with the reference's answer: `score` + 1 − `baseline`. It may exceed 1 if people
        rate the answer better than the reference's."""
        return self.score + 1 - self.baseline

    @property
    def aimed(self) -> float:
        """The target quality, on the scale of `score`."""
        return max(0.0, min(self.target, _MOST_TARGET) - 1 + self.baseline)


@dataclass(frozen=True, slots=True)
class Standing:
    """The statistics of one backend for one team. The mean and the interval are computed from the weighted answers
    since the last change."""

    learned: Learned
    mean: float
    low: float
    high: float
    target: float
    judged: int
    """Number of judged answers, including forgotten answers."""
    alarm: int | None = None
    """Id of the answer at which the quality was found to be below target. None if it is not below target now."""
    since: int | None = None
    """Id of the answer at which the drop probably began."""

    @property
    def below(self) -> bool:
        return self.alarm is not None


def standing(rows: Sequence[Judged]) -> Standing:
    """Compute the statistics of one backend for one team. `rows`: the backend's judged answers, oldest first. Raises
    ValueError if there are none."""
    if not rows:
        raise ValueError("there are no judged answers")
    watch = Watch()
    for place, row in enumerate(rows):
        watch.see(place, row)
    alarm = watch.alarm
    kept = rows[watch.base :]
    half_life = _HALF_LIFE if alarm is None else _HALF_LIFE_ALARMED
    weights = [
        row.weight * 0.5 ** (age / half_life) for age, row in zip(range(len(kept) - 1, -1, -1), kept, strict=True)
    ]
    n = sum(weights)
    mean = min(1.0, sum(weight * row.relative for weight, row in zip(weights, kept, strict=True)) / n)
    target = sum(weight * row.target for weight, row in zip(weights, kept, strict=True)) / n
    low, high = wilson(mean, n)
    margin = 0.0 if alarm is None else max(0.0, 2 * _chance_below(mean, target - TOLERANCE, n) - 1)
    return Standing(
        Learned(shift_of(kept, weights), n, margin), mean, low, high, target, len(rows),
        None if alarm is None else rows[alarm].id, None if alarm is None else rows[watch.base].id,
    )  # fmt: skip


class Watch:
    """Detects changes of the mean score. It processes one answer at a time."""

    def __init__(self) -> None:
        self.alarm: int | None = None
        """Index of the answer that raised the alarm."""
        self.base = 0
        """Index of the first answer that is not forgotten."""
        self._wealth = [0.0] * len(_BETS)
        self._begun = [0] * len(_BETS)
        self._scores = self._targets = self._weights = 0.0

    def see(self, place: int, row: Judged) -> None:
        if self.alarm is None:
            self._bet(place, row)
        else:
            self._recover(place, row)

    def _bet(self, place: int, row: Judged) -> None:
        target = max(0.0, row.aimed - TOLERANCE)
        safe = _SAFE / (row.weight * (1 - target))
        for number, bet in enumerate(_BETS):
            if self._wealth[number] <= 1:
                self._begun[number] = place
            kept = max(self._wealth[number], 1.0)
            self._wealth[number] = kept * (1 + min(bet, safe) * row.weight * (target - row.score))
        if sum(self._wealth) >= ALARM * len(_BETS):
            richest = max(range(len(_BETS)), key=lambda number: self._wealth[number])
            self.alarm, self.base = place, self._begun[richest]
            self._scores = self._targets = self._weights = 0.0

    def _recover(self, place: int, row: Judged) -> None:
        fade = 0.5 ** (1 / _HALF_LIFE_ALARMED)
        self._scores = self._scores * fade + row.weight * row.relative
        self._targets = self._targets * fade + row.weight * row.target
        self._weights = self._weights * fade + row.weight
        if self._weights >= _LEAST_TO_END and self._scores >= self._targets - TOLERANCE * self._weights:
            self.alarm, self.base = None, max(self.base, place - 2 * _HALF_LIFE_ALARMED)
            self._wealth = [0.0] * len(_BETS)


def shift_of(rows: Sequence[Judged], weights: Sequence[float], tau: float = TAU) -> float:
    """The shift in log-odds that makes the predicted probabilities of `rows` fit their scores best. `weights`: shape
    (len(rows),). `tau`: standard deviation of the prior."""
    shift = 0.0
    odds = [logit(row.predicted) for row in rows]
    for _ in range(_STEPS):
        slope, curvature = -shift / tau**2, 1 / tau**2
        for row, weight, prior in zip(rows, weights, odds, strict=True):
            chance = sigmoid(prior + shift)
            slope += weight * (row.relative - chance)
            curvature += weight * chance * (1 - chance)
        step = max(-2.0, min(2.0, slope / curvature))
        shift += step
        if abs(step) < 1e-6:
            break
    return shift


def wilson(mean: float, n: float, z: float = _Z) -> tuple[float, float]:
    """The lower and upper bound of the mean of `n` scores in 0..1. With the default `z`, each bound is one-sided at 95
    %."""
    middle = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(max(mean * (1 - mean), 0.0) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def _chance_below(mean: float, target: float, n: float) -> float:
    """The probability that the true mean is below `target`. `mean`: measured mean of `n` scores. Method: the score test
    of Wilson's interval."""
    wanted = min(max(target, 0.01), 0.99)
    return NormalDist().cdf((target - mean) / math.sqrt(wanted * (1 - wanted) / n))
