"""A period is whole days of a time zone; the present one ends now."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from gateway.dashboard.periods import parse_period
from gateway.domain.money.windows import iso
from tests.dashboard.samples import NOW


@pytest.mark.parametrize(
    ("text", "since", "until", "days"),
    [
        ("1", "2027-01-15", "2027-01-15T12:00:00Z", 1),
        ("30", "2026-12-17", "2027-01-15T12:00:00Z", 30),
        ("month", "2027-01-01", "2027-01-15T12:00:00Z", 15),
        ("last-month", "2026-12-01", "2027-01-01T00:00:00Z", 31),
        ("2026-02", "2026-02-01", "2026-03-01T00:00:00Z", 28),
        ("2026-12-24..2026-12-26", "2026-12-24", "2026-12-27T00:00:00Z", 3),
        ("2027-01-10..2027-02-10", "2027-01-10", "2027-01-15T12:00:00Z", 6),
    ],
)
def test_periods_begin_and_end_as_said(text: str, since: str, until: str, days: int) -> None:
    period = parse_period(text, NOW)
    assert (iso(period.since)[:10], iso(period.until), period.days) == (since, until, days)
    assert period.current_month is (text == "month")


@pytest.mark.parametrize(
    ("text", "zone", "since", "until", "days"),
    [
        ("1", "Pacific/Auckland", "2027-01-15T11:00:00Z", "2027-01-15T12:00:00Z", 1),
        ("month", "America/Bogota", "2027-01-01T05:00:00Z", "2027-01-15T12:00:00Z", 15),
        ("2026-03", "Europe/Madrid", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z", 31),
        ("2026-10-25..2026-10-25", "Europe/Madrid", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", 1),
        ("366", "Europe/Madrid", "2026-01-14T23:00:00Z", "2027-01-15T12:00:00Z", 366),
    ],
)
def test_days_are_those_of_the_zone(text: str, zone: str, since: str, until: str, days: int) -> None:
    period = parse_period(text, NOW, ZoneInfo(zone))
    assert (iso(period.since), iso(period.until), period.days) == (since, until, days)
    assert period.current_month is (text == "month")


NONE = (
    *(
        "",
        "0",
        "367",
        "٣",
        "-1",
        "1.5",
        "year",
        "2026-13",
        "2027-02",
        "9999-12",
        "..",
        "2026-01-01..",
        "1970-01",
        "x" * 5000,
    ),
    *("2026-01-02..2026-01-01", "2024-01-01..2026-01-01", "2026-1-1..2026-1-2", "9999-12"),
)


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"period|day|write"):
        parse_period(text, NOW)
