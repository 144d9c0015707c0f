"""Hourly figures of a team for anomaly detection: spend, cache hits, attempts without a price or with a cost of 0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, Integer, and_, case, func, or_, select

from gateway.ledger.reports.points import spans
from gateway.ledger.store.entries import IDLE, entries
from gateway.ledger.store.sums import pico_sum, whole

HOUR_S = 3600


@dataclass(slots=True)
class Backend:
    """The figures of a team's attempts at one backend in one hour."""

    cost_pico: int = 0
    unpriced: int = 0
    """Number of attempts with tokens but no price, or with units that have no price."""
    free: int = 0
    """Number of attempts that succeeded and cost 0."""


@dataclass(slots=True)
class Hour:
    """The figures of one team in one hour. Simulated rows are not included."""

    cost_pico: int = 0
    hits: int = 0
    lookups: int = 0
    backends: dict[str, Backend] = field(default_factory=dict)


def read(connection: Connection, team: str, since: float, until: float) -> dict[int, Hour]:
    """Read the figures of each hour. Returns a dictionary from the number of the hour since 1970 to the figures of this
    hour. Hours without rows are omitted. `since` must be the beginning of an hour."""
    c = entries.c
    hour = spans(connection, HOUR_S)
    tokens = c.input_tokens + c.cached_tokens + c.output_tokens + c.reasoning_tokens
    called = c.attempt > 0
    figures = (
        _count(called, or_(and_(c.cost_pico.is_(None), tokens > 0), c.unpriced != "")),
        _count(called, c.cost_pico == 0, c.outcome.in_(("ok", "escalated")), c.kind != IDLE),
        _count(c.attempt == 0),
        _count(c.attempt == 1, c.cache == "miss", c.kind == ""),
        *pico_sum(c.cost_pico),
    )
    real = and_(c.team == team, c.simulated.is_(False), c.at >= since, c.at < until)
    rows = connection.execute(select(hour, c.backend, *figures).where(real).group_by(hour, c.backend)).all()
    found: dict[int, Hour] = {}
    for number, name, unpriced, free, hits, misses, high, low in rows:
        one, cost = found.setdefault(int(number), Hour()), whole(high, low)
        one.cost_pico += cost
        one.hits += int(hits)
        one.lookups += int(hits) + int(misses)
        if name:
            one.backends[name] = Backend(cost, int(unpriced), int(free))
    return found


def priced(hours: Iterable[Hour]) -> set[str]:
    """The backends at which some attempts cost money. An attempt with a cost of 0 at such a backend is suspicious."""
    return {name for hour in hours for name, backend in hour.backends.items() if backend.cost_pico > 0}


def _count(*conditions: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((and_(*conditions), entries.c.attempts), else_=0)), 0, type_=Integer)
