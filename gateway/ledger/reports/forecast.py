"""Forecasts a budget's spend at the end of its window, with an interval, and when its limit is reached.

The spend that is to come is a profile times how far blocks of the past were off it, drawn many times:

- the profile is the mean spend of each hour of the week (three weeks of history or more) or of the day (three days), or
  a flat pace (less, and in windows of an hour); recent weeks weigh more, by half every two weeks;
- a block is a day (a few cells where the profile is flat), and its ratio is what was spent in it over what the profile
  says. Ratios are drawn in runs of about a week, since good and bad days come together: the stationary bootstrap
  (Politis and Romano 1994, "The stationary bootstrap", JASA 89) on what is left when the season is taken out;
- the last block's ratio R goes on, but fades: block j is multiplied by R ** (rho ** (j + 1)), where rho is how alike
  neighbouring blocks have been (their autocorrelation, within 0.3..0.9), and R is kept within 1/4..4;
- each course is multiplied by the mean of as many ratios, drawn anew, as the past has: how little a short past knows.
  Beyond the next day a level may drift as no past can show: one log-normal factor a course, of 6 %, or of 25 % where
  the past does not know the week.

Chance is seeded: the same spend gives the same forecast. `tests/ledger/test_forecast.py` counts how often the truth
lies inside.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random

HOUR_S, DAY_S = 3600.0, 86_400.0
HISTORY_S = 56 * DAY_S
"""Seconds of history that are used; older spend is ignored."""
GRAIN_S, FINE_GRAIN_S = 900, 60
"""Sums over so many seconds are fine enough as points; the second for windows of an hour."""

_DAY, _WEEK = 24, 168
"""Cells of a season, in windows whose cells are hours."""
_ENOUGH = 3
"""So many seasons make a season."""
_SHORT_BLOCK = 6
_RUN = 7
"""Blocks of a run, on average."""
_NEW_RUN = math.log(1 - 1 / _RUN)
_LEAST_SHARE = 0.1
"""The past must be as long as this share of what it is extended over."""
_HALF_LIFE_S = 14 * DAY_S
_LEAST_RHO, _MOST_RHO = 0.3, 0.9
"""A steady past has never seen the level change, but today it may have."""
_USUAL_RHO, _RHO_BLOCKS = 0.5, 8
"""Neighbours of fewer blocks than that say nothing: then they are as alike as is usual."""
_MOST_LEVEL = 4.0
_DRIFT, _NO_WEEK = 0.06, 0.25
"""Standard deviations of the logarithm of what a level's drift, and not knowing the week, may do."""
_DRAWS = 300
_LOW, _HIGH = 0.1, 0.9
_HORIZON_S = 180 * DAY_S
"""Seconds forecast for a window without an end."""

Point = tuple[float, int]
"""Unix seconds and what was spent then, or in a short while around it, in any integer unit."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """An interval meant to hold four times in five: `low` and `high` are its tenth and ninetieth percentiles.

    Amounts are in the points' unit.
    """

    total_low: int | None
    """At the window's end, what is spent already included; None for a window without an end."""
    total: int | None
    total_high: int | None
    exhausted_at_low: float | None
    """Unix seconds at which the limit is reached, at the earliest; None: not before the window ends."""
    exhausted_at: float | None
    exhausted_at_high: float | None
    """At the latest."""


def grain_s(window: tuple[float, float]) -> int:
    """How finely points should be summed for a forecast of `window`."""
    return FINE_GRAIN_S if _cell_s(window) < HOUR_S else GRAIN_S


def history_since(window: tuple[float, float], now: float) -> float:
    """From when on points are worth reading; what is spent in the window itself is among them."""
    return now - _history_s(window)


def forecast(
    points: Iterable[Point],
    window: tuple[float, float],
    now: float,
    *,
    limit: int | None = None,
    spent: int | None = None,
) -> Forecast | None:
    """What will be spent in `window` (`[start, end)`, Unix seconds), from `points` of now and before, window included.

    `spent`: what is already spent in the window, where that is known better than from the points. None when the window
    is not now's, or the past is shorter than a tenth of what is left: it is too early to say.
    """
    start, end = window
    points = [point for point in points if point[0] <= now]
    known = [point for point in points if now - point[0] <= _history_s(window)]
    since = min((at for at, _ in known), default=now)
    ahead_s = min(end - now, _HORIZON_S)
    if not start <= now < end or now - since < _LEAST_SHARE * ahead_s:
        return None
    used = sum(amount for at, amount in points if at >= start) if spent is None else spent
    left = None if limit is None else limit - used
    cell_s = _cell_s(window)
    paths = _Paths(_cells(known, now, since, cell_s), cell_s)
    totals, times = paths.draw(ahead_s / cell_s, left, Random(int(start)))  # noqa: S311 - a forecast is no secret
    low, mid, high = (used + round(_quantile(totals, share)) for share in (_LOW, 0.5, _HIGH))
    ends = [None if math.isinf(at) else now + at * cell_s for at in (_quantile(times, q) for q in (_LOW, 0.5, _HIGH))]
    if math.isinf(end):
        return Forecast(None, None, None, *ends)
    return Forecast(low, mid, high, *ends)


def _history_s(window: tuple[float, float]) -> float:
    """Longer than any window that ends, so that all of what is spent in it is among the points."""
    return DAY_S if _cell_s(window) < HOUR_S else HISTORY_S


def _cell_s(window: tuple[float, float]) -> float:
    return HOUR_S if window[1] - window[0] > 2 * HOUR_S else 60.0


def _cells(points: Sequence[Point], now: float, since: float, cell_s: float) -> list[float]:
    """What was spent in each cell, counted back from now; nothing happened in those without a point."""
    cells = [0.0] * max(1, math.ceil((now - since) / cell_s))
    for at, amount in points:
        cells[min(int((now - at) / cell_s), len(cells) - 1)] += amount
    return cells


class _Paths:
    """Courses that the spend may take from now on, learned from `cells` of the past, the most recent first."""

    def __init__(self, cells: Sequence[float], cell_s: float) -> None:
        self._season, self._block = _rhythm(len(cells), seasonal=cell_s == HOUR_S)
        profile = _profile(cells, self._season, _HALF_LIFE_S / cell_s)
        self._sums = [0.0, *accumulate(profile)]
        ratios = self._past_ratios(cells)
        mean = sum(ratios) / len(ratios)
        seasons = len(cells) / self._season
        # A profile has learned some of the noise of the past it is compared with.
        wider = math.sqrt(seasons / (seasons - 1)) if seasons >= _ENOUGH and self._season > 1 else 1.0
        self._ratios = [max(0.0, 1 + (ratio / mean - 1) * wider) for ratio in ratios] if mean else [1.0]
        self._level = min(max(ratios[0], 1 / _MOST_LEVEL), _MOST_LEVEL) if self._season > 1 else 1.0
        self._rho = _alike(ratios)
        self._drift = 0.0 if cell_s < HOUR_S else _DRIFT if self._season == _WEEK else _NO_WEEK

    def draw(self, ahead: float, left: int | None, random: Random) -> tuple[list[float], list[float]]:
        """Sorted: what is spent in the next `ahead` cells, and after how many `left` of it is; inf: never."""
        steps = range(math.ceil(ahead / self._block))
        widths = [min(self._block, ahead - step * self._block) for step in steps]
        planned = [
            self._expected(step * self._block, width) * self._level ** (self._rho ** (step + 1))
            for step, width in zip(steps, widths, strict=True)
        ]
        vague = self._drift if ahead > _DAY else 0.0
        totals, times = [], []
        for _ in range(_DRAWS):
            known = self._run(random, len(self._ratios))
            doubt = sum(known) / len(known) * math.exp(random.gauss(0.0, vague))
            spends = [
                plan * ratio * doubt for plan, ratio in zip(planned, self._run(random, len(planned)), strict=True)
            ]
            totals.append(sum(spends))
            times.append(math.inf if left is None else self._when(spends, widths, left))
        return sorted(totals), sorted(times)

    def _run(self, random: Random, count: int) -> list[float]:
        """`count` ratios in the order in which they came: from anywhere on, and anew after about `_RUN` of them."""
        ratios, drawn = self._ratios, list[float]()
        while len(drawn) < count:
            begin = int(random.random() * len(ratios))
            length = 1 + int(math.log(1 - random.random()) / _NEW_RUN)
            stretch = ratios[max(0, begin - length + 1) : begin + 1][::-1]
            drawn += stretch
        return drawn[:count]

    def _past_ratios(self, cells: Sequence[float]) -> list[float]:
        """Spent over expected in each whole block of the past, the most recent first; never empty."""
        found = []
        for number in range(len(cells) // self._block):
            begin = number * self._block
            expected = self._expected(-begin - self._block, self._block)
            found.append(sum(cells[begin : begin + self._block]) / expected if expected > 0 else 1.0)
        return found

    def _expected(self, begin: float, width: float) -> float:
        """The profile's spend in the `width` cells that begin `begin` cells after now."""
        return self._until(begin + width) - self._until(begin)

    def _until(self, cell: float) -> float:
        seasons, rest = divmod(cell, self._season)
        whole = int(rest)
        part = (rest - whole) * (self._sums[whole + 1] - self._sums[whole])
        return seasons * self._sums[-1] + self._sums[whole] + part

    def _when(self, spends: Sequence[float], widths: Sequence[float], left: int) -> float:
        """After how many cells `left` is spent, as evenly within a cell as its block is spent; inf: never."""
        if left <= 0:
            return 0.0
        before = 0.0
        for number, (spend, width) in enumerate(zip(spends, widths, strict=True)):
            if before + spend >= left:
                begin = number * self._block
                wanted = (left - before) / spend * self._expected(begin, width)
                steps = range(1, math.ceil(width))
                return begin + min(width, 1 + bisect_left(steps, wanted, key=lambda step: self._expected(begin, step)))
            before += spend
        return math.inf


def _profile(cells: Sequence[float], season: int, half_life: float) -> list[float]:
    """Mean spend of each phase of the season that begins now; `half_life` in cells."""
    sums, weights = [0.0] * season, [0.0] * season
    for ago, amount in enumerate(cells):
        phase, weight = -(ago + 1) % season, 2 ** (-ago / half_life)
        sums[phase] += weight * amount
        weights[phase] += weight
    return [total / weight for total, weight in zip(sums, weights, strict=True)]


def _alike(ratios: Sequence[float]) -> float:
    """Lag-one autocorrelation."""
    if len(ratios) < _RHO_BLOCKS:
        return _USUAL_RHO
    mean = sum(ratios) / len(ratios)
    off = [ratio - mean for ratio in ratios]
    variance = sum(one * one for one in off)
    both = sum(one * other for one, other in pairwise(off))
    return min(max(both / variance if variance else 0.0, _LEAST_RHO), _MOST_RHO)


def _rhythm(length: int, *, seasonal: bool) -> tuple[int, int]:
    """(cells of a season, 1 for a flat profile; cells of a block) that so much past allows."""
    if seasonal and length >= _ENOUGH * _WEEK:
        return _WEEK, _DAY
    if seasonal and length >= _ENOUGH * _DAY:
        return _DAY, _DAY
    return 1, min(_SHORT_BLOCK, max(1, length // 4))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest of `ordered`: infinities cannot be interpolated."""
    return ordered[round(share * (len(ordered) - 1))]
