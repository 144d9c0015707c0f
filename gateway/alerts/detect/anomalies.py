"""Detects hours in which a team's figures differ from its past. Works on hourly figures only, without I/O.

A figure x is compared with the past by its modified z-score, 0.6745 (x - median) / MAD. The median is that of the past
hours. MAD is the median of the absolute deviations from this median. Even if half of the past hours are unusual, median
and MAD change little; mean and standard deviation would change much (Iglewicz and Hoaglin 1993, "How to Detect and
Handle Outliers"). These authors call a figure with a score above 3.5 an outlier. For spend, x is the logarithm, because
a busy hour costs a multiple of a quiet hour and not a fixed amount more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from gateway.alerts.alert import Alert, Kind, alert
from gateway.alerts.detect.hours import HOUR_S, Hour, priced
from gateway.domain.money.windows import iso
from gateway.domain.notify import Severity
from gateway.domain.units import usd_text

PAST_HOURS = 28 * 24
ENOUGH_HOURS = 24
"""Minimum number of past hours to compare with. Only hours with spend count for spend, and only hours with enough cache
look-ups count for the hit rate."""
OUTLIER = 3.5
TIMES = 3.0
"""An hour is an anomaly only if it costs more than `TIMES` times the median hour. If all past hours cost nearly the
same, the z-score alone would report small differences."""
LEAST_LOOKUPS = 50
COLLAPSED = 0.5
"""The hit rate of the current and the previous hour is an anomaly only if it is below this share of the median hit
rate."""
_LEAST_LOG_MAD, _LEAST_RATE_MAD = 0.1, 0.03
_PER_SIGMA = 0.6745


def robust_z(value: float, past: Sequence[float], least_mad: float) -> float:
    """The modified z-score of `value` compared with the values `past`, which must not be empty. `least_mad`: the
    smallest MAD that is used."""
    middle = median(past)
    mad = median(abs(each - middle) for each in past)
    return _PER_SIGMA * (value - middle) / max(mad, least_mad)


def found(team: str, hours: Mapping[int, Hour], now: float) -> list[Alert]:
    """The alerts about anomalies in the current and the previous hour. Each kind is reported at most once a day
    (UTC)."""
    current = int(now // HOUR_S)
    last = {number: hours[number] for number in (current - 1, current) if number in hours}
    past = [hour for number, hour in hours.items() if current - PAST_HOURS <= number < current - 1]
    kinds = (
        _spend_rate(team, past, last.values(), now),
        _unpriced(team, last.values(), now),
        _zero_cost(team, hours.values(), last.values(), now),
        _hit_rate(team, past, last.values(), now),
    )
    return [one for one in kinds if one is not None]


def _spend_rate(team: str, past: Sequence[Hour], last: Iterable[Hour], now: float) -> Alert | None:
    """The alert about an unusually expensive hour; None if there is none. `last`: the previous and the current hour.
    The current hour is checked before it ends, because its spend can only rise.
    """
    known = [hour.cost_pico for hour in past if hour.cost_pico > 0]
    dearest = max((hour.cost_pico for hour in last), default=0)
    if len(known) < ENOUGH_HOURS or dearest <= TIMES * median(known):
        return None
    z = robust_z(math.log(dearest), [math.log(cost) for cost in known], _LEAST_LOG_MAD)
    if z <= OUTLIER:
        return None
    usual = int(median(known))
    text = (
        f"Team {team} spends {usd_text(dearest)} USD in an hour; {usd_text(usual)} USD is usual in an hour with spend "
        f"(robust z-score {z:.1f} over {len(known)} hours)."
    )
    facts = {"spent_usd": usd_text(dearest), "usual_usd": usd_text(usual), "z": round(z, 2)}
    return _anomaly(team, "spend_rate", "warning", now, text, facts)


def _unpriced(team: str, last: Iterable[Hour], now: float) -> Alert | None:
    counts = _by_backend((name, backend.unpriced) for hour in last for name, backend in hour.backends.items())
    if not counts:
        return None
    text = (
        f"{sum(counts.values())} attempts of team {team} have no price, or units without one, on {', '.join(counts)}: "
        "their cost is in no sum and no budget. `thriftgate prices unpriced` lists them."
    )
    return _anomaly(team, "unpriced", "warning", now, text, {"attempts": counts})


def _zero_cost(team: str, hours: Iterable[Hour], last: Iterable[Hour], now: float) -> Alert | None:
    """The alert about backends with successful answers that cost 0, although other answers of these backends cost
    money. None if there are no such backends. `last`: the previous and the current hour.
    """
    paid = priced(hours)
    counts = _by_backend(
        (name, backend.free) for hour in last for name, backend in hour.backends.items() if name in paid
    )
    if not counts:
        return None
    text = (
        f"{sum(counts.values())} answers for team {team} cost 0 on {', '.join(counts)}, which had a cost before: "
        "either no tokens were reported, or the price was changed to 0."
    )
    return _anomaly(team, "zero_cost", "warning", now, text, {"attempts": counts})


def _hit_rate(team: str, past: Sequence[Hour], last: Iterable[Hour], now: float) -> Alert | None:
    hits, lookups = (sum(getattr(hour, name) for hour in last) for name in ("hits", "lookups"))
    rates = [hour.hits / hour.lookups for hour in past if hour.lookups * 2 >= LEAST_LOOKUPS]
    if lookups < LEAST_LOOKUPS or len(rates) < ENOUGH_HOURS:
        return None
    rate, usual = hits / lookups, median(rates)
    if rate >= COLLAPSED * usual or robust_z(rate, rates, _LEAST_RATE_MAD) >= -OUTLIER:
        return None
    text = (
        f"The cache answers {rate:.0%} of team {team}'s look-ups; {usual:.0%} is usual. Prompts, models or cache "
        "settings may have changed, or the cache was flushed."
    )
    return _anomaly(
        team, "hit_rate", "info", now, text, {"hit_rate": round(rate, 4), "usual_hit_rate": round(usual, 4)}
    )


def _by_backend(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, count in counts:
        if count:
            sums[name] = sums.get(name, 0) + count
    return dict(sorted(sums.items()))


def _anomaly(team: str, kind: Kind, severity: Severity, now: float, text: str, facts: dict[str, Any]) -> Alert:
    day = iso(now // 86400 * 86400)
    base = {"window": "day", "window_start": day, "threshold": kind, **facts, "at": iso(now), "text": text}
    return alert(f"{team}/anomaly/{kind}/{day}", kind, severity, team, base)
