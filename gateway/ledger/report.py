"""The usage report: who used how much of what and what it cost, exact to the pico-dollar."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import orjson
from sqlalchemy import ColumnElement, Connection, Integer, and_, case, cast, func, select

from gateway.domain.price import Price
from gateway.domain.usage import Usage
from gateway.ledger.sums import pico_sum, snapshot, whole
from gateway.state.sql import Database
from gateway.state.tables import ledger

DIMENSIONS = ("team", "key", "model", "backend", "day", "tag")
CACHE = "(cache)"
"""Stands where a backend would, for answers that none was asked for."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Line:
    """One group. Tokens are those bought from backends; what the cache answered stands apart."""

    group: tuple[str, ...] = ()
    requests: int = 0
    attempts: int = 0
    failed: int = 0
    interrupted: int = 0
    cache_answers: int = 0
    cache_tokens: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: int = 0
    """Attempts whose tokens the gateway counted itself."""
    unpriced: int = 0
    """Attempts with tokens that nobody knows the price of: they cost something, but not in `cost_pico`."""
    cost_pico: int = 0
    saved_pico: int = 0

    def plus(self, other: Line) -> Line:
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return replace(self, **counts)


COUNTS = tuple(entry.name for entry in fields(Line) if entry.name != "group")


@dataclass(frozen=True, slots=True)
class Simulated:
    """What simulated backends pretended to serve; never part of a total."""

    model: str
    tier: str
    requests: int
    input_tokens: int
    output_tokens: int
    like: str = ""
    """The real model whose list price `hypothetical_pico` is."""
    hypothetical_pico: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    by: tuple[str, ...]
    since: float | None
    until: float | None
    rows: tuple[Line, ...]
    total: Line
    simulated: tuple[Simulated, ...] = field(default=())


class StandIn(Protocol):
    def stand_in(self, model: str, tier: str) -> tuple[Price, str] | None:
        """The list price that a simulated backend is compared with, and its name."""
        ...


def dimensions(by: str) -> tuple[str, ...]:
    """`"team,model"` → `("team", "model")`. Raises ValueError."""
    names = tuple(dict.fromkeys(name.strip() for name in by.split(",") if name.strip()))
    unknown = [name for name in names if name not in DIMENSIONS]
    if unknown or not names:
        raise ValueError(f"cannot group by {by!r}; use one or more of {', '.join(DIMENSIONS)}, separated by commas")
    return names


async def usage(
    database: Database,
    *,
    team: str | None = None,
    since: float | None = None,
    until: float | None = None,
    by: str = "model",
    prices: StandIn | None = None,
) -> Report:
    """Attempts that began in `[since, until)` (Unix seconds). Raises ValueError for `by`, SQLAlchemyError."""
    (report,) = await asyncio.to_thread(_usage, database, [dimensions(by)], team, since, until, prices)
    return report


def _usage(
    database: Database,
    groupings: Sequence[tuple[str, ...]],
    team: str | None,
    since: float | None,
    until: float | None,
    prices: StandIn | None,
) -> list[Report]:
    with snapshot(database) as connection:
        return read_usage(connection, groupings, team=team, since=since, until=until, prices=prices)


def read_usage(
    connection: Connection,
    groupings: Sequence[tuple[str, ...]],
    *,
    team: str | None = None,
    since: float | None = None,
    until: float | None = None,
    prices: StandIn | None = None,
) -> list[Report]:
    """A report for each of `groupings` (of `DIMENSIONS`), all of the same rows when `connection` is a snapshot."""
    at = ledger.c.at
    conditions = [
        *([ledger.c.team == team] if team is not None else []),
        *([at >= since] if since is not None else []),
        *([at < until] if until is not None else []),
    ]
    real = and_(ledger.c.simulated.is_(False), *conditions)
    sqlite = connection.dialect.name == "sqlite"
    lines = [_lines(connection, real, [_column(name, sqlite) for name in by]) for by in groupings]
    (total,) = _lines(connection, real, []) or [Line()]
    simulated = tuple(_simulated(connection, and_(ledger.c.simulated.is_(True), *conditions), prices))
    return [
        Report(by, since, until, tuple(_readable(rows, by)), total, simulated)
        for by, rows in zip(groupings, lines, strict=True)
    ]


def _column(name: str, sqlite: bool) -> ColumnElement[Any]:
    match name:
        case "key":
            return ledger.c.key_id
        case "tag":
            return ledger.c.tags
        case "day":
            days = ledger.c.at / 86400
            # SQLite may lack FLOOR, PostgreSQL's CAST rounds.
            return cast(days, Integer) if sqlite else cast(func.floor(days), Integer)
        case _:
            column: ColumnElement[Any] = ledger.c[name]
            return column


def _lines(connection: Connection, which: ColumnElement[bool], group: Sequence[ColumnElement[Any]]) -> list[Line]:
    c = ledger.c
    called, cached = c.attempt > 0, c.attempt == 0
    inputs = c.input_tokens + c.cached_tokens + c.cache_write_5m_tokens + c.cache_write_1h_tokens
    tokens = inputs + c.output_tokens + c.reasoning_tokens + c.audio_tokens
    columns = [
        func.count(c.request_id.distinct()),
        _sum(1, called),
        _sum(1, called, c.outcome == "failed"),
        _sum(1, called, c.outcome == "interrupted"),
        _sum(1, cached),
        _sum(tokens, cached),
        _sum(c.input_tokens, called),
        _sum(c.cached_tokens, called),
        _sum(c.cache_write_5m_tokens + c.cache_write_1h_tokens, called),
        _sum(c.output_tokens + c.audio_tokens, called),
        _sum(c.reasoning_tokens, called),
        _sum(1, called, c.estimated.is_(True)),
        _sum(1, called, c.cost_pico.is_(None), tokens > 0),
        *pico_sum(c.cost_pico),
        *pico_sum(c.saved_pico),
    ]
    found = connection.execute(select(*group, *columns).where(which).group_by(*group).order_by(*group)).all()
    lines = []
    for row in found:
        values = row[len(group) :]
        counts = [*(int(value or 0) for value in values[:-4]), whole(*values[-4:-2]), whole(*values[-2:])]
        lines.append(Line(tuple(map(str, row[: len(group)])), **dict(zip(COUNTS, counts, strict=True))))
    return lines


def _sum(what: ColumnElement[Any] | int, *conditions: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.sum(case((and_(*conditions), what), else_=0))


def _readable(lines: list[Line], by: tuple[str, ...]) -> list[Line]:
    """Days as dates, a line for each tag instead of each combination, a name for the cache."""
    merged: dict[tuple[str, ...], Line] = {}
    for line in lines:
        for group in _groups(line.group, by):
            named = replace(line, group=group)
            merged[group] = merged[group].plus(named) if group in merged else named
    return [merged[group] for group in sorted(merged)]


def _groups(values: tuple[str, ...], by: tuple[str, ...]) -> list[tuple[str, ...]]:
    groups: list[tuple[str, ...]] = [()]
    for name, value in zip(by, values, strict=True):
        match name:
            case "day":
                written = [(_EPOCH + timedelta(days=int(value))).date().isoformat()]
            case "tag":
                written = [f"{tag}={text}" for tag, text in orjson.loads(value).items()] or [""]
            case "model" | "backend":
                written = [value or CACHE]
            case _:
                written = [value]
        groups = [(*group, one) for group in groups for one in written]
    return groups


def _simulated(connection: Connection, which: ColumnElement[bool], prices: StandIn | None) -> list[Simulated]:
    c = ledger.c
    found = connection.execute(
        select(
            c.model,
            c.tier,
            func.count(c.request_id.distinct()),
            func.sum(c.input_tokens + c.cached_tokens + c.cache_write_5m_tokens + c.cache_write_1h_tokens),
            func.sum(c.output_tokens + c.reasoning_tokens + c.audio_tokens),
        )
        .where(which)
        .group_by(c.model, c.tier)
        .order_by(c.model, c.tier)
    ).all()
    lines = []
    for model, tier, requests, inputs, outputs in found:
        line = Simulated(model, tier, requests, int(inputs), int(outputs))
        if prices is not None and (stand_in := prices.stand_in(model, tier)) is not None:
            price, like = stand_in
            tokens = Usage(line.input_tokens, output_tokens=line.output_tokens)
            cost = replace(price, beyond=None).cost(tokens)  # a sum of many calls is not one long call
            line = replace(line, like=like, hypothetical_pico=cost)
        lines.append(line)
    return lines
