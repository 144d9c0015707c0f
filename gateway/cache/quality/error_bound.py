"""Upper confidence limits for the rate of wrong hits, computed from counts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

LEAST = ((0.01, 0.25), (0.005, 0.4), (0.002, 0.6))
"""(Allowed share of wrong hits per look-up, minimum score of a hit), in descending order of the share. The entry that
applies is the first whose share is at most the share that the policy allows. The scores were chosen on a stream of
2,995 English questions, which had .0080, .0037 and .0017 wrong hits per look-up with these three scores."""
LEVELS = (LEAST[0][1], 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 0.98)
"""The possible thresholds of the verifier's score. Each threshold is also the lower limit of a score level, and the
hits of each level are counted separately. The first threshold is the verifier's own threshold."""
CONFIDENCE = 0.98

_PRIOR_WRONG = (0.6, 0.54, 0.4, 0.35, 0.3, 0.3, 0.3, 0.002)
"""Share of wrong hits at each level that is assumed before any check. At the levels before the last, the verifier's
neural networks decide. There, the assumed share is far above the share measured on questions from Quora, because
questions from other sources (questions of one pattern, edited questions) have such high shares. Comparisons after
misses soon show the real share."""
_PRIOR_CHECKS = (10.0, 10.0, 10.0, 10.0, 10.0, 15.0, 20.0, 400.0)
"""Number of checked hits that the assumed share counts as, at each level. The number is highest at the last level,
where the verifier's rules decide, because the share of wrong hits was measured best there."""
_TOLERATED = 1.5
"""Number of wrong hits that the checks may find in addition to the expected number. Up to this number, the difference
counts as chance."""
_PRIOR_SEEN = (0.01, 0.018, 0.018, 0.018, 0.035, 0.055, 0.035, 0.03)
"""Share of look-ups at each level that is assumed before any look-up. The assumption counts as `_PRIOR_LOOKUPS`
look-ups."""
_PRIOR_LOOKUPS = 400.0
_HALF_LIFE = 4000.0
"""Number of look-ups after which an earlier look-up counts only half. Older look-ups count less, because questions
change over time."""
_MEMORY = (120.0, 120.0, 120.0, 120.0, 120.0, 120.0, 120.0, 60.0)
"""Number of later checks at the same level after which an earlier check counts only about a third. The number must be
large at the levels where the networks decide. Otherwise such a level could not be shown to be right if most look-ups
have this level. The last level needs no such evidence. With its shorter memory, it is found sooner that this level is
wrong."""
_LEAST_ASSUMED = 0.1
"""Minimum weight of the assumed share of wrong hits at a level. The last level keeps its weight."""
_ASSUMED_MEMORY = 60.0
"""Number of checks at a level after which the weight of its assumed share is about a third, if that is not below the
minimum."""
_LONG_HALF_LIFE = 20_000.0
"""Number of look-ups after which a past wrong hit counts only half in `Tally.allowed`. That method allows fewer wrong
hits if there were too many in the past."""
_EVERY = 64
"""Number of look-ups after which the counts are reduced again, so that older look-ups count less."""


@dataclass(slots=True)
class Tally:
    """The counts of one scope, by score level. Old counts lose weight over time.

    `seen`: look-ups with an accepted candidate. `checked`: look-ups in `seen` that were compared with a fresh answer.
    `wrong`: look-ups in `checked` whose stored answer was wrong.
    """

    lookups: float = 0.0
    seen: list[float] = field(default_factory=lambda: [0.0] * len(LEVELS))
    checked: list[float] = field(default_factory=lambda: [0.0] * len(LEVELS))
    wrong: list[float] = field(default_factory=lambda: [0.0] * len(LEVELS))
    assumed: list[float] = field(default_factory=lambda: [1.0] * len(LEVELS))
    """Weight of the assumed share of wrong hits."""
    long_lookups: float = 0.0
    long_wrong: float = 0.0
    """Estimated number of wrong hits that were served. Each wrong hit that a check found also stands for wrong hits
    that were not checked."""
    _since: int = 0

    def look(self, score: float | None) -> None:
        """Count a look-up. `score`: the score of the best candidate that the verifier accepted; None if no candidate
        was accepted."""
        self.lookups += 1
        self.long_lookups += 1
        if score is not None:
            self.seen[level_of(score)] += 1
        self._since += 1
        if self._since >= _EVERY:
            self._fade(self._since)
            self._since = 0

    def check(self, score: float, *, wrong: bool, given: bool, share: float) -> None:
        """Count the comparison of a candidate's answer with a fresh answer. `given`: whether the candidate was served
        as a hit. `share`: probability of the check."""
        level = level_of(score)
        keep = 1 - 1 / _MEMORY[level]
        self.checked[level] = self.checked[level] * keep + 1
        self.wrong[level] = self.wrong[level] * keep + wrong
        if level < len(LEVELS) - 1:
            self.assumed[level] = max(_LEAST_ASSUMED, self.assumed[level] * (1 - 1 / _ASSUMED_MEMORY))
        if given and wrong:
            self.long_wrong += 1 / share

    def elsewhere(self, lookups: float) -> None:
        """Count look-ups that other workers have made. Wrong hits of other workers are not counted here, because these
        workers report them separately."""
        self.long_lookups += lookups

    def _fade(self, lookups: int) -> None:
        keep, keep_long = 0.5 ** (lookups / _HALF_LIFE), 0.5 ** (lookups / _LONG_HALF_LIFE)
        self.lookups *= keep
        for counts in (self.seen, self.checked, self.wrong):
            counts[:] = [count * keep for count in counts]
        self.long_lookups *= keep_long
        self.long_wrong *= keep_long

    def allowed(self, max_error: float) -> float:
        """The share of future look-ups that may be wrong hits. This is `max_error`, minus the amount by which the past
        share of wrong hits was above `max_error`.

        Source: Gibbs and Candès, Adaptive conformal inference under distribution shift, 2021.
        """
        past = self.long_wrong / (self.long_lookups + _PRIOR_LOOKUPS)
        return max_error * min(1.0, max(0.0, 2 - past / max_error)) if max_error > 0 else 0.0

    def level(self, max_error: float) -> float:
        """The lowest threshold at which at most the share `max_error` of the look-ups are wrong hits, with 98 %
        credibility. inf if no threshold is high enough.
        """
        allowed = self.allowed(max_error)
        for place, bar in enumerate(LEVELS):
            if self.certainty(place, allowed) >= CONFIDENCE:
                return bar
        return math.inf

    @property
    def _belief(self) -> float:
        """The weight, from 0 to 1, of the error rates that are assumed before any checks. The weight decreases if the
        checks find more wrong hits than assumed."""
        expected = sum(rate * checks for rate, checks in zip(_PRIOR_WRONG, self.checked, strict=True))
        return min(1.0, (expected + _TOLERATED) / max(1e-9, sum(self.wrong)))

    def certainty(self, place: int, error: float) -> float:
        """Probability that at most the share `error` of the look-ups are wrong hits, with threshold
        `LEVELS[place]`.

        The error of each level has a beta posterior. The weighted sum of these errors is approximated by a beta
        distribution of equal mean and variance.
        """
        mean = variance = 0.0
        belief = self._belief
        for each in range(place, len(LEVELS)):
            share = (self.seen[each] + _PRIOR_SEEN[each] * _PRIOR_LOOKUPS) / (self.lookups + _PRIOR_LOOKUPS)
            expected = _PRIOR_CHECKS[each] * belief * self.assumed[each]
            checks = self.checked[each] + expected
            rate = (self.wrong[each] + _PRIOR_WRONG[each] * expected) / checks
            mean += share * rate
            variance += share * share * rate * (1 - rate) / (checks + 1)
        strength = mean * (1 - mean) / variance - 1
        return beta_cdf(error, mean * strength, (1 - mean) * strength)


@dataclass(slots=True)
class Measured:
    """The measured numbers of look-ups, hits, checks and wrong hits. No error rate is assumed before the first check,
    and older checks count as much as newer ones.
    """

    lookups: int = 0
    hits: int = 0
    checked: int = 0
    wrong: int = 0
    undecided: int = 0
    weight: float = 0.0
    """The number of hits that the checked hits stand for. A hit that was checked with probability p stands for 1/p
    hits."""
    weight_squared: float = 0.0
    weight_wrong: float = 0.0

    def check(self, *, wrong: bool, share: float) -> None:
        self.checked += 1
        self.wrong += wrong
        self.weight += 1 / share
        self.weight_squared += 1 / share**2
        self.weight_wrong += wrong / share

    @property
    def figures(self) -> tuple[float, ...]:
        """All values, in the order in which `add` accepts them."""
        return tuple(getattr(self, name) for name in self.__slots__)

    def add(self, figures: Sequence[float]) -> None:
        for name, figure in zip(self.__slots__, figures, strict=True):
            setattr(self, name, getattr(self, name) + figure)

    @property
    def of_hits(self) -> float | None:
        """Share of wrong hits among the hits; None before the first check."""
        return self.weight_wrong / self.weight if self.weight else None

    @property
    def of_lookups(self) -> float | None:
        """Share of look-ups that are wrong hits; None before the first check."""
        return None if self.of_hits is None else self.of_hits * self.hits / max(1, self.lookups)

    def interval(self) -> tuple[float, float]:
        """The two-sided 95 % confidence interval of wrong hits per look-up. Method: Clopper and Pearson, with Kish's
        effective number of checks."""
        if not self.hits:
            return 0.0, 0.0
        share = self.hits / max(1, self.lookups)
        if not self.weight:
            return 0.0, share
        checks = self.weight**2 / self.weight_squared
        wrong = checks * self.weight_wrong / self.weight
        low, high = clopper_pearson(wrong, checks, 0.95)
        return low * share, high * share

    def as_object(self) -> dict[str, Any]:
        names = ("lookups", "hits", "checked", "wrong", "undecided")
        return {name: getattr(self, name) for name in names} | {
            "wrong_of_lookups": self.of_lookups,
            "wrong_of_hits": self.of_hits,
            "interval": list(self.interval()),
        }


def level_of(score: float) -> int:
    """The index in `LEVELS` of the level of a score. The verifier must have accepted the score."""
    return max(0, bisect_right(LEVELS, score) - 1)


@lru_cache(maxsize=256)  # called every second, but the result changes only with a check
def clopper_pearson(wrong: float, checks: float, confidence: float) -> tuple[float, float]:
    """The exact two-sided confidence interval of a share (Clopper and Pearson 1934). The counts may be fractions."""
    tail = (1 - confidence) / 2
    right = checks - wrong
    low = beta_quantile(tail, wrong, right + 1) if wrong > 0 else 0.0
    high = beta_quantile(1 - tail, wrong + 1, right) if right > 1e-9 else 1.0
    return low, high


def beta_quantile(probability: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, computed by its continued fraction (DLMF 8.17.22)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x > (a + 1) / (a + b + 2):  # the continued fraction of the other tail converges faster here
        return 1 - front * _fraction(1 - x, b, a) / b
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, computed by Lentz's method."""
    least = 1e-300
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1), least)
    value = d
    for m in range(1, 400):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1 / _away(1 + step * d, least)
            c = _away(1 + step / c, least)
            value *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return value


def _away(value: float, least: float) -> float:
    """`value`, moved away from zero if its absolute value is below `least`."""
    return value if abs(value) > least else least
