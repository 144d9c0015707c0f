"""Dates as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.ledger.reports.period import parse_when

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T06:30", datetime(2026, 3, 1, 6, 30, tzinfo=UTC)),
        ("2026-03-01T06:30:00Z", datetime(2026, 3, 1, 6, 30, tzinfo=UTC)),
        ("2026-03-01T06:30+02:00", datetime(2026, 3, 1, 4, 30, tzinfo=UTC)),
        ("7d", datetime(2026, 3, 3, 12, tzinfo=UTC)),
        ("36h", datetime(2026, 3, 9, 0, tzinfo=UTC)),
    ],
)
def test_dates_times_and_how_long_ago(text: str, expected: datetime) -> None:
    assert parse_when(text, NOW) == expected.timestamp()


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "-3d"])
def test_anything_else_is_answered_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="2026-01-31"):
        parse_when(text, NOW)
