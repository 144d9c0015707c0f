"""How people write the beginning and end of a report: a date, a time, or how long ago."""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.domain.units import parse_duration


def parse_when(text: str, now: float) -> float:
    """`2026-01-31`, `2026-01-31T12:00+01:00` or `7d` (so long before `now`) → Unix seconds; UTC where no zone is named.

    Raises ValueError.
    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        pass
    else:
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    try:
        return now - parse_duration(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no date; write 2026-01-31, 2026-01-31T12:00Z or how long ago, such as 7d"
        ) from None
