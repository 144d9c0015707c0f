"""Parses the period of the page's figures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

MOST_DAYS = 366
DAY_S = 86400
USUAL = "30"
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])", re.ASCII)
_EARLIEST = 1970


@dataclass(frozen=True, slots=True)
class Period:
    """`[since, until)` in Unix seconds, made of whole days in UTC. If the period contains `now`, it ends at `now`."""

    text: str
    since: float
    until: float
    now: float

    @property
    def days(self) -> int:
        """The number of days, including a last day that has only begun."""
        return -int(-(self.until - self.since) // DAY_S)

    @property
    def current_month(self) -> bool:
        """Whether the period is the calendar month that contains `now`."""
        return self.since == _month(_day(self.now)) and self.until == self.now


def parse_period(text: str, now: float) -> Period:
    """The period that `text` names: a number of days that end now (`30`), `month`, `last-month`, a calendar month
    (`2026-01`), or a first and a last day (`2026-01-05..2026-01-20`). Raises ValueError."""
    since, until = _bounds(text, now)
    if since >= now:
        raise ValueError("the period has not begun yet")
    if until - since > MOST_DAYS * DAY_S:
        raise ValueError(f"a period has at most {MOST_DAYS} days")
    return Period(text, since, min(until, now), now)


def _bounds(text: str, now: float) -> tuple[float, float]:
    today = _day(now)
    if text == "month":
        return _month(today), _next_month(today)
    if text == "last-month":
        before = today.replace(day=1) - timedelta(days=1)
        return _month(before), _month(today)
    if _MONTH.fullmatch(text):
        first = _date(f"{text}-01")
        return _month(first), _next_month(first)
    if ".." in text:
        first, last = map(_date, text.split("..", 1))
        if last < first:
            raise ValueError("the last day is before the first one")
        return _at(first), _at(last) + DAY_S
    if text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= MOST_DAYS:
        return _at(today) - (int(text) - 1) * DAY_S, _at(today) + DAY_S
    raise ValueError(
        f"write a number of days from 1 to {MOST_DAYS}, month, last-month, 2026-01 or 2026-01-05..2026-01-20"
    )


def _date(text: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise ValueError("a day is written 2026-01-05") from None
    if found.year <= _EARLIEST or len(text) != len("2026-01-05"):
        raise ValueError("a day is written 2026-01-05")
    return found


def _day(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


def _at(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _month(day: date) -> float:
    return _at(day.replace(day=1))


def _next_month(day: date) -> float:
    return _month(day.replace(day=1) + timedelta(days=32))


def month_end(now: float) -> float:
    """The end of the calendar month (UTC) that contains `now`, in Unix seconds."""
    return _next_month(_day(now))
