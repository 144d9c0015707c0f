"""Parses the start and end of a report's period. Each is a date, a time, or an age such as `7d`."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from gateway.domain.text.truncation import cut
from gateway.domain.units import parse_duration

_END = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


def parse_when(text: str, now: float, zone: tzinfo = UTC) -> float:
    """Convert a time to Unix seconds: `2026-01-31`, `2026-01-31T12:00+01:00`, or an age before `now` such as `7d`.

    A time without a zone is in `zone`. Raises ValueError.
    """
    shown = cut(text, 80)
    try:
        when = _parsed(text, now, zone)
    except ValueError:
        raise ValueError(
            f"{shown!r} is no date; write 2026-01-31, 2026-01-31T12:00Z or how long ago, such as 7d"
        ) from None
    if not 0 <= when < _END:
        raise ValueError(f"{shown!r} is no time between 1970 and 9999")
    return when


def parse_period(
    since: str | None, until: str | None, now: float, zone: tzinfo = UTC
) -> tuple[float | None, float | None]:
    """Convert the start and end of a period to Unix seconds. The formats are those of `parse_when`. Raises ValueError,
    also if the period is empty or has not begun."""
    begin = parse_when(since, now, zone) if since else None
    end = parse_when(until, now, zone) if until else None
    if begin is not None and begin > now:
        raise ValueError(f"{cut(str(since), 80)!r} is in the future, so the period has no request")
    if end is not None and end <= (begin or 0):
        raise ValueError(f"the end {cut(str(until), 80)!r} is not after the start, so the period is empty")
    return begin, end


def _parsed(text: str, now: float, zone: tzinfo) -> float:
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return now - parse_duration(text)
    return (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()
