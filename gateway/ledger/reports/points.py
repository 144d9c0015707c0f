"""Sums spend over short spans of equal length, as input for forecasts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, Integer, and_, cast, func, select

from gateway.ledger.reports.forecast import Point, grain_s, history_since
from gateway.ledger.store.entries import entries
from gateway.ledger.store.sums import pico_sum, whole


def spend_points(
    connection: Connection,
    which: ColumnElement[bool],
    window: tuple[float, float],
    now: float,
    column: ColumnElement[Any] | None = None,
) -> list[Point]:
    """The points for a forecast of `window`, in order of time. Each point sums `column` over the rows of a short span.
    `which`: condition on rows. `column`: the column to sum; None: the cost in pico-dollars. Simulated rows are left
    out."""
    c = entries.c
    grain = grain_s(window)
    recent = and_(c.at >= history_since(window, now), c.at <= now)
    span = spans(connection, grain)
    found = connection.execute(
        select(span, *pico_sum(c.cost_pico if column is None else column))
        .where(which, recent, c.simulated.is_(False))
        .group_by(span)
        .order_by(span)
    ).all()
    sums = [(number, whole(high, low)) for number, high, low in found]
    # A point's time is the middle of its span, so that it is in the same window.
    return [(min((number + 0.5) * grain, now), amount) for number, amount in sums if amount]


def spans(connection: Connection, seconds: int) -> ColumnElement[int]:
    """The SQL expression that numbers the spans: the number of the span in which a row began. Each span is `seconds`
    long; span 0 begins in 1970."""
    quotient = entries.c.at / cast(seconds, Float)
    # SQLite may lack FLOOR. PostgreSQL's CAST rounds.
    return cast(quotient if connection.dialect.name == "sqlite" else func.floor(quotient), Integer)
