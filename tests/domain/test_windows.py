"""Windows are calendar windows, and clocks that change leave neither gap nor overlap."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.money.windows import iso, offsets, window_bounds, zone_named

ODD_ZONES = (
    "UTC",
    "Europe/Madrid",
    "America/Sao_Paulo",  # changed at midnight
    "America/Havana",
    "Australia/Lord_Howe",  # changes by half an hour
    "Asia/Kathmandu",  # +05:45
    "Pacific/Apia",  # skipped a day
    "Africa/Casablanca",
    "America/St_Johns",  # once changed at 00:01
    "Antarctica/Troll",  # changes by two hours
)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def bounds(window: str, zone: str, now: str) -> tuple[str, str]:
    start, end = window_bounds(window, zone, at(now))
    return iso(start), iso(end)


@pytest.mark.parametrize(
    ("window", "zone", "now", "start", "end"),
    [
        ("hour", "UTC", "2026-05-05T10:59:59", "2026-05-05T10:00:00Z", "2026-05-05T11:00:00Z"),
        ("hour", "Asia/Kolkata", "2026-05-05T10:10:00", "2026-05-05T09:30:00Z", "2026-05-05T10:30:00Z"),
        ("day", "Europe/Madrid", "2026-05-05T22:30:00", "2026-05-05T22:00:00Z", "2026-05-06T22:00:00Z"),
        ("week", "UTC", "2026-05-05T10:00:00", "2026-05-04T00:00:00Z", "2026-05-11T00:00:00Z"),
        ("month", "Europe/Madrid", "2026-03-15T10:00:00", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"),
        ("month", "UTC", "2026-12-31T23:59:59", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("month", "UTC", "2028-02-29T12:00:00", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
    ],
)
def test_a_window_is_the_calendars(window: str, zone: str, now: str, start: str, end: str) -> None:
    assert bounds(window, zone, now) == (start, end)


def test_the_total_window_never_ends() -> None:
    assert window_bounds("total", "UTC", 1.0) == (0.0, math.inf)


def test_the_first_instant_belongs_to_a_window_and_the_last_to_the_next() -> None:
    start, end = window_bounds("day", "UTC", at("2026-05-05T00:00:00"))
    assert start == at("2026-05-05T00:00:00")
    assert window_bounds("day", "UTC", end)[0] == end


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29T12:00:00", 23), ("2026-10-25T12:00:00", 25), ("2026-05-05T12:00:00", 24)]
)
def test_a_day_lasts_as_long_as_the_clocks_say(day: str, hours: int) -> None:
    start, end = window_bounds("day", "Europe/Madrid", at(day))
    assert (end - start) / 3600 == hours


def test_an_hour_that_is_repeated_counts_as_two() -> None:
    first = window_bounds("hour", "Europe/Madrid", at("2026-10-25T00:30:00"))
    second = window_bounds("hour", "Europe/Madrid", at("2026-10-25T01:30:00"))
    assert first[1] == second[0]
    assert [end - start for start, end in (first, second)] == [3600, 3600]


def test_a_day_begins_where_the_clock_jumps_over_midnight() -> None:
    assert bounds("day", "America/Havana", "2025-03-09T12:00:00")[0] == "2025-03-09T05:00:00Z"


def test_an_unknown_window_is_named() -> None:
    with pytest.raises(ValueError, match="fortnight"):
        window_bounds("fortnight", "UTC", 0.0)


@given(
    zone=st.sampled_from(ODD_ZONES),
    window=st.sampled_from(("hour", "day", "week", "month")),
    now=st.integers(at("1985-01-01T00:00:00").__int__(), at("2036-12-31T00:00:00").__int__()),
)
def test_windows_hold_their_instant_and_join_without_gap(zone: str, window: str, now: int) -> None:
    start, end = window_bounds(window, zone, float(now))
    assert start <= now < end
    assert window_bounds(window, zone, start) == (start, end)
    assert window_bounds(window, zone, end - 1) == (start, end)
    assert window_bounds(window, zone, end)[0] == end


@pytest.mark.parametrize("zone", ODD_ZONES)
@pytest.mark.parametrize("window", ["hour", "day"])
def test_windows_join_around_every_change_of_the_clocks(zone: str, window: str) -> None:
    for change in _changes(zone):
        now = change - 26 * 3600.0
        while now < change + 26 * 3600:
            start, end = window_bounds(window, zone, now)
            assert start <= now < end
            assert window_bounds(window, zone, end)[0] == end
            now = end


def _changes(zone: str) -> list[float]:
    """Where the offset changes between 2010 and 2012, to the hour."""
    info = ZoneInfo(zone)
    times = range(int(at("2010-01-01T00:00:00")), int(at("2012-02-01T00:00:00")), 3600)
    offsets = [datetime.fromtimestamp(time, info).utcoffset() for time in times]
    return [float(times[i]) for i in range(1, len(times)) if offsets[i] != offsets[i - 1]]


def test_offsets_change_where_clocks_do() -> None:
    zone = zone_named("Europe/Madrid")
    since, until = (datetime(2026, month, 1, tzinfo=UTC).timestamp() for month in (3, 12))
    changes = [(iso(begin), offset / 3600) for begin, offset in offsets(zone, since, until)]
    assert changes == [("2026-03-01T00:00:00Z", 1), ("2026-03-29T01:00:00Z", 2), ("2026-10-25T01:00:00Z", 1)]
    assert offsets(UTC, since, until) == [(since, 0)]
