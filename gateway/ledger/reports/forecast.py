"""Forecasts the spend of a budget at the end of its window, with an interval, and the time at which its limit is
reached.

Future spend is simulated many times. Each simulated path is a profile of the expected spend, multiplied by random
ratios of the past:

- The profile is the mean spend of each hour of the week. It needs three weeks of history. With three days of history,
  it is the mean spend of each hour of the day. With less history, or if the window is an hour, it is a constant rate.
  In the means, the weight of a past hour halves with every two weeks of its age.
- The past is divided into blocks. A block is a day, or a few cells if the profile is constant. The ratio of a block is
  its actual spend divided by the profile's. Ratios are drawn in runs of about a week, because days of high spend follow
  each other, and so do days of low spend. This is the stationary bootstrap (Politis and Romano 1994, "The stationary
  bootstrap", JASA 89), applied to the spend divided by its profile.
- The ratio R of the last past block also affects the future, less and less: future block j is multiplied by
  R ** (rho ** (j + 1)). Here rho is the autocorrelation of neighbouring blocks, limited to 0.3..0.9. R is limited to
  1/4..4.
- Each path is multiplied by the mean of newly drawn ratios, as many as the past has. This represents the uncertainty of
  a short past. Beyond the next day, the path is also multiplied by a log-normal factor for drift. The standard
  deviation of this factor is 6 %, or 25 % if the history is too short for a weekly profile.

The random generator is seeded, so the same spend gives the same forecast. `tests/ledger/test_forecast.py` measures how
often the true value is within the interval.
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
"""Seconds of history that are used. Older spend is ignored."""
GRAIN_S, FINE_GRAIN_S = 900, 60
"""`GRAIN_S`: seconds of spend that one point sums. `FINE_GRAIN_S`: the same for windows of an hour."""

_DAY, _WEEK = 24, 168
"""Number of cells in a day and in a week. Used for windows whose cells are hours."""
_ENOUGH = 3
"""Minimum number of past days or weeks for a profile with that season."""
_SHORT_BLOCK = 6
"""Maximum number of cells in a block if the profile is constant."""
_RUN = 7
"""Mean number of consecutive blocks that are drawn together as a run."""
_NEW_RUN = math.log(1 - 1 / _RUN)
_LEAST_SHARE = 0.1
"""Minimum length of the known past, as a share of the time that is forecast."""
_HALF_LIFE_S = 14 * DAY_S
_LEAST_RHO, _MOST_RHO = 0.3, 0.9
"""Limits of the autocorrelation. The lower limit is above 0, so that today's spend has an effect on the next blocks
even if the past shows no autocorrelation."""
_USUAL_RHO, _RHO_BLOCKS = 0.5, 8
"""`_USUAL_RHO`: autocorrelation that is assumed if the past has fewer than `_RHO_BLOCKS` blocks."""
_MOST_LEVEL = 4.0
_DRIFT, _NO_WEEK = 0.06, 0.25
"""Standard deviations of the logarithm of the drift: `_DRIFT` with a weekly profile, `_NO_WEEK` without."""
_DRAWS = 300
_LOW, _HIGH = 0.1, 0.9
_HORIZON_S = 180 * DAY_S
"""Seconds that are forecast if the window has no end."""

Point = tuple[float, int]
"""(Unix seconds, spend in a short span around that time). The spend may have any integer unit."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast, in the unit of the points from which it was computed. `low` and `high` are the 10th and 90th
    percentile: in 80 % of cases the true value should lie between them."""

    total_low: int | None
    """Spend at the window's end, including past spend; None for a window without an end."""
    total: int | None
    total_high: int | None
    exhausted_at_low: float | None
    """Earliest Unix time at which the limit is reached; None if it is not reached before the window ends."""
    exhausted_at: float | None
    exhausted_at_high: float | None
    """Latest Unix time at which the limit is reached; None if it is not reached before the window ends."""


def grain_s(window: tuple[float, float]) -> int:
    """The length in seconds of the spans over which the spend is summed for a forecast of `window`."""
    return FINE_GRAIN_S if _cell_s(window) < HOUR_S else GRAIN_S


def history_since(window: tuple[float, float], now: float) -> float:
    """The Unix time at which the history for a forecast of `window` must begin."""
    return now - _history_s(window)


def forecast(
    points: Iterable[Point],
    window: tuple[float, float],
    now: float,
    *,
    limit: int | None = None,
    spent: int | None = None,
) -> Forecast | None:
    """Forecast the spend in `window` (`[start, end)`, Unix seconds) from past `points`. `spent`: the exact spend in the
    window so far, if known. A window without end counts as 180 days. None if `now` is outside of the window, or if the
    history is shorter than a tenth of the remaining time."""
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
    """The length in seconds of the history that a forecast of `window` uses. The history is longer than the window, if
    the window has an end."""
    return DAY_S if _cell_s(window) < HOUR_S else HISTORY_S


def _cell_s(window: tuple[float, float]) -> float:
    return HOUR_S if window[1] - window[0] > 2 * HOUR_S else 60.0


def _cells(points: Sequence[Point], now: float, since: float, cell_s: float) -> list[float]:
    """The spend in each cell (an equal span of time), most recent cell first. A cell without a point has 0. `since`:
    Unix time at which the past begins."""
    cells = [0.0] * max(1, math.ceil((now - since) / cell_s))
    for at, amount in points:
        cells[min(int((now - at) / cell_s), len(cells) - 1)] += amount
    return cells


class _Paths:
    """Simulates future spend from past spend. `cells`: the past spend in equal spans of time, most recent first.
    `cell_s`: length of such a span in seconds."""

    def __init__(self, cells: Sequence[float], cell_s: float) -> None:
        self._season, self._block = _rhythm(len(cells), seasonal=cell_s == HOUR_S)
        profile = _profile(cells, self._season, _HALF_LIFE_S / cell_s)
        self._sums = [0.0, *accumulate(profile)]
        ratios = self._past_ratios(cells)
        mean = sum(ratios) / len(ratios)
        seasons = len(cells) / self._season
        # The profile contains some of the noise of the past, so the ratios of the past vary too little.
        wider = math.sqrt(seasons / (seasons - 1)) if seasons >= _ENOUGH and self._season > 1 else 1.0
        self._ratios = [max(0.0, 1 + (ratio / mean - 1) * wider) for ratio in ratios] if mean else [1.0]
        self._level = min(max(ratios[0], 1 / _MOST_LEVEL), _MOST_LEVEL) if self._season > 1 else 1.0
        self._rho = _alike(ratios)
        self._drift = 0.0 if cell_s < HOUR_S else _DRIFT if self._season == _WEEK else _NO_WEEK

    def draw(self, ahead: float, left: int | None, random: Random) -> tuple[list[float], list[float]]:
        """Simulate the next `ahead` cells many times. `left`: the amount that may still be spent; None: no limit.
        Returns two sorted lists with one element per simulation: the spend, and the number of cells until `left` is
        spent (inf: never)."""
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
        """Draw `count` past ratios at random, in series of about `_RUN` consecutive ratios in order of time."""
        ratios, drawn = self._ratios, list[float]()
        while len(drawn) < count:
            begin = int(random.random() * len(ratios))
            length = 1 + int(math.log(1 - random.random()) / _NEW_RUN)
            stretch = ratios[max(0, begin - length + 1) : begin + 1][::-1]
            drawn += stretch
        return drawn[:count]

    def _past_ratios(self, cells: Sequence[float]) -> list[float]:
        """Actual spend divided by expected spend, for each whole block of the past, most recent block first. Never
        empty."""
        found = []
        for number in range(len(cells) // self._block):
            begin = number * self._block
            expected = self._expected(-begin - self._block, self._block)
            found.append(sum(cells[begin : begin + self._block]) / expected if expected > 0 else 1.0)
        return found

    def _expected(self, begin: float, width: float) -> float:
        """The spend in `width` future cells according to the profile. `begin`: number of cells between now and the
        first of them."""
        return self._until(begin + width) - self._until(begin)

    def _until(self, cell: float) -> float:
        seasons, rest = divmod(cell, self._season)
        whole = int(rest)
        part = (rest - whole) * (self._sums[whole + 1] - self._sums[whole])
        return seasons * self._sums[-1] + self._sums[whole] + part

    def _when(self, spends: Sequence[float], widths: Sequence[float], left: int) -> float:
        """The number of future cells (equal spans of time) after which `left` is spent; inf if it is not spent.
        `spends`, `widths`: spend and number of cells of each block."""
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
    """The weighted mean spend of each cell of a season; the first cell of the season begins now. `half_life`: the age,
    in cells, at which a cell has half the weight."""
    sums, weights = [0.0] * season, [0.0] * season
    for ago, amount in enumerate(cells):
        phase, weight = -(ago + 1) % season, 2 ** (-ago / half_life)
        sums[phase] += weight * amount
        weights[phase] += weight
    return [total / weight for total, weight in zip(sums, weights, strict=True)]


def _alike(ratios: Sequence[float]) -> float:
    """The autocorrelation of neighbouring ratios, limited to `_LEAST_RHO`..`_MOST_RHO`."""
    if len(ratios) < _RHO_BLOCKS:
        return _USUAL_RHO
    mean = sum(ratios) / len(ratios)
    off = [ratio - mean for ratio in ratios]
    variance = sum(one * one for one in off)
    both = sum(one * other for one, other in pairwise(off))
    return min(max(both / variance if variance else 0.0, _LEAST_RHO), _MOST_RHO)


def _rhythm(length: int, *, seasonal: bool) -> tuple[int, int]:
    """The number of cells in a season and in a block, for a past of `length` cells. A season of 1 cell means a constant
    profile."""
    if seasonal and length >= _ENOUGH * _WEEK:
        return _WEEK, _DAY
    if seasonal and length >= _ENOUGH * _DAY:
        return _DAY, _DAY
    return 1, min(_SHORT_BLOCK, max(1, length // 4))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile `share` of the sorted values `ordered`. The result is always one of the values, because infinities
    cannot be interpolated."""
    return ordered[round(share * (len(ordered) - 1))]
