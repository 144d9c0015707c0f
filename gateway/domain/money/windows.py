"""Computes the calendar windows of budgets: start and end of the hour, day, week or month that contains a moment."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, partial
from zoneinfo import ZoneInfo

_DAY_S = 86_400
_PRECISION_S = 0.5
"""Precision, in seconds, of the search for a change of the offset. Time zones change their offset on whole seconds."""


def window_bounds(window: str, timezone: str, now: float) -> tuple[float, float]:
    """The start (included) and end (excluded) of the window that contains `now`, in Unix seconds. `window`: hour, day,
    week (from Monday), month or total; for total, the result is (0.0, inf). `timezone`: IANA name. Raises ValueError,
    ZoneInfoNotFoundError."""
    if window == "total":
        return 0.0, math.inf
    zone = zone_named(timezone)
    if window == "hour":
        return _hour(zone, now)
    today = datetime.fromtimestamp(now, zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0, fold=0)
    match window:
        case "day":
            first, after = today, today + timedelta(days=1)
        case "week":
            first = today - timedelta(days=today.weekday())
            after = first + timedelta(days=7)
        case "month":
            first = today.replace(day=1)
            after = (first + timedelta(days=31)).replace(day=1)
        case _:
            raise ValueError(f"unknown window {window!r}; use hour, day, week, month or total")
    return instant(zone, first), instant(zone, after)


@cache
def zone_named(name: str) -> tzinfo:
    """The time zone `name`. The result is cached forever, because no request should have to read the zone's file.
    Raises ZoneInfoNotFoundError or ValueError for an unknown zone.
    """
    return UTC if name == "UTC" else ZoneInfo(name)


def _hour(zone: tzinfo, now: float) -> tuple[float, float]:
    offset = _offset(zone, now)
    start = (now + offset) // 3600 * 3600 - offset
    end = start + 3600
    # Few zones shift by half an hour. For them, the hour is split at the change.
    if (_offset(zone, start) - offset) % 3600:
        start = _first(start, now, lambda at: _offset(zone, at) == offset)
    if (_offset(zone, end - 1) - offset) % 3600:
        end = _first(now, end, lambda at: _offset(zone, at) != offset)
    return start, end


def _offset(zone: tzinfo, at: float) -> float:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    assert offset is not None
    return offset.total_seconds()


def instant(zone: tzinfo, wall: datetime) -> float:
    """The first moment at which clocks in `zone` show the time `wall`, in Unix seconds. If the clocks skip this time,
    the result is a later moment.
    """
    early, late = sorted(wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    shown = datetime.fromtimestamp(early, zone).replace(tzinfo=None, fold=0)
    if shown == wall:
        return early
    return _first(early, late, lambda at: datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0) >= wall)


def _first(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """The first whole second in `(low, high]` at which `holds` is true. `holds(high)` must be true."""
    while high - low > _PRECISION_S:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return float(round(high))


def offsets(zone: tzinfo, since: float, until: float) -> list[tuple[float, float]]:
    """Divide `[since, until)` into parts in which clocks in `zone` have the same offset. Returns (begin, seconds east
    of UTC) for each part."""
    found = [(since, _offset(zone, since))]
    before = since
    while before < until:
        after = min(before + _DAY_S, until)
        if _offset(zone, after) != (old := found[-1][1]):
            found.append((_first(before, after, partial(_differs, zone, old)), _offset(zone, after)))
        before = after
    return found


def _differs(zone: tzinfo, offset: float, at: float) -> bool:
    return _offset(zone, at) != offset


def iso(at: float) -> str:
    """Format Unix seconds as `2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
