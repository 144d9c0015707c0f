"""Parses the period of the page's figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from gateway.domain.money.windows import instant

MOST_DAYS = 366
DAY_S = 86400
USUAL = "30"
_DAY = timedelta(days=1)
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])", re.ASCII)
_EARLIEST = 1970


@dataclass(frozen=True, slots=True)
class Period:
    """The period `[since, until)` in Unix seconds. It has whole days in `zone`, except that a period that contains
    `now` ends at `now`."""

    text: str
    since: float
    until: float
    now: float
    zone: tzinfo = UTC

    @property
    def first(self) -> date:
        return datetime.fromtimestamp(self.since, self.zone).date()

    @property
    def end(self) -> datetime:
        """The end of the period (`until`) as local time in `zone`."""
        return datetime.fromtimestamp(self.until, self.zone).replace(tzinfo=None)

    @property
    def today(self) -> date:
        return datetime.fromtimestamp(self.now, self.zone).date()

    @property
    def days(self) -> int:
        """The number of days. A last day that has only begun counts, too."""
        end = self.end
        return (end.date() - self.first).days + (end.time() > time.min)

    def spans(self) -> Iterator[tuple[date, float, float]]:
        """The days, each with its begin and end in Unix seconds. The last day may end early, at `until`."""
        day = self.first
        while (since := begin_of(day, self.zone)) < self.until:
            next_day = day + _DAY
            until = min(begin_of(next_day, self.zone), self.until)
            if since < until:  # some zones have left out a day
                yield day, since, until
            day = next_day

    @property
    def current_month(self) -> bool:
        """Whether the period is the calendar month that contains `now`."""
        return self.first == self.today.replace(day=1) and self.until == self.now

    @property
    def month_end(self) -> float:
        """The end of the calendar month that contains `now`, in Unix seconds."""
        return begin_of(_next_month(self.today), self.zone)

    @property
    def last_of_month(self) -> date:
        return _next_month(self.today) - _DAY


def parse_period(text: str, now: float, zone: tzinfo = UTC) -> Period:
    """Parse a period: a number of days that end now (`30`), `month`, `last-month`, a calendar month (`2026-01`), or a
    first and a last day (`2026-01-05..2026-01-20`). The days are those of `zone`. Raises ValueError."""
    first, end = _bounds(text, datetime.fromtimestamp(now, zone).date())
    if (end - first).days > MOST_DAYS:
        raise ValueError(f"a period has at most {MOST_DAYS} days")
    since = begin_of(first, zone)
    if since >= now:
        raise ValueError("the period has not begun yet")
    return Period(text, since, min(begin_of(end, zone), now), now, zone)


def _bounds(text: str, today: date) -> tuple[date, date]:
    """The first day (included) and the last day (excluded) of a period."""
    month = today.replace(day=1)
    if text == "month":
        return month, _next_month(month)
    if text == "last-month":
        return (month - _DAY).replace(day=1), month
    if _MONTH.fullmatch(text):
        first = _date(f"{text}-01")
        return first, _next_month(first)
    if ".." in text:
        first, last = map(_date, text.split("..", 1))
        if last < first:
            raise ValueError("the last day is before the first one")
        return first, last + _DAY
    if text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= MOST_DAYS:
        return today - (int(text) - 1) * _DAY, today + _DAY
    raise ValueError(
        f"write a number of days from 1 to {MOST_DAYS}, month, last-month, 2026-01 or 2026-01-05..2026-01-20"
    )


def _date(text: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise ValueError("a day is written 2026-01-05") from None
    if found.year <= _EARLIEST or found.year >= date.max.year or len(text) != len("2026-01-05"):
        raise ValueError("a day is written 2026-01-05")
    return found


def begin_of(day: date, zone: tzinfo) -> float:
    """The begin of a day in `zone`, in Unix seconds."""
    return instant(zone, datetime.combine(day, time.min))


def _next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)
