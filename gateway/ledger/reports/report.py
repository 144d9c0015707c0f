"""The usage report. It is grouped by dimensions, and its money is exact to the pico-dollar."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, tzinfo
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select

from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.record import FOR_SESSIONS
from gateway.ledger.reports.dimensions import column, dimensions, written
from gateway.ledger.store.entries import CHECK, IDLE, entries, of, within
from gateway.ledger.store.sums import pico_sum, snapshot, whole
from gateway.state.sql.database import Database

_NO_REQUESTS = (IDLE, CHECK, *FOR_SESSIONS)
"""Kinds of rows that no client's request has caused."""


@dataclass(frozen=True, slots=True)
class Line:
    """The figures of one group of the report. Token counts include only calls of backends. `cache_tokens`: the tokens
    of answers from the cache."""

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
    """Number of attempts for which the gateway counted the tokens, because the backend did not."""
    unpriced: int = 0
    """Number of attempts whose tokens, fees or service tier have no known price. The cost that is missing from
    `cost_pico` is unknown."""
    cost_pico: int = 0
    saved_pico: int = 0
    idle_pico: int = 0
    """Idle cost of machines with an hourly price. It is a part of `cost_pico`."""
    decided: int = 0
    """Number of answers for which routing chose one backend and another backend answered (observe mode, outside the
    rollout, hold-out), and for which both costs are known."""
    undecided_pico: int = 0
    """Actual cost of the answers that `decided` counts."""
    decided_pico: int = 0
    """Cost that the tokens of the answers in `decided` would have had on the backends that routing chose."""
    decided_ppm: int = 0
    """Sum of the adequacies that routing expected for the answers in `decided`, in millionths. An adequacy is the
    probability that an answer is as good as the reference's."""
    checks: int = 0
    """Number of attempts that are background checks. `requests` does not count them."""
    checks_pico: int = 0
    """Cost of background checks. It is a part of `cost_pico`."""

    def plus(self, other: Line) -> Line:
        """The sum of both lines, with the group of this line."""
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return replace(self, **counts)


COUNTS = tuple(entry.name for entry in fields(Line) if entry.name != "group")


@dataclass(frozen=True, slots=True)
class Simulated:
    """The traffic of simulated backends. No total of the report includes it."""

    model: str
    tier: str
    requests: int
    input_tokens: int
    output_tokens: int
    like: str = ""
    """The real model whose list price was used for `hypothetical_pico`."""
    hypothetical_pico: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A usage report. `since`, `until`: Unix seconds."""

    by: tuple[str, ...]
    since: float | None
    until: float | None
    rows: tuple[Line, ...]
    total: Line
    simulated: tuple[Simulated, ...] = field(default=())


class SimulatedCall(Protocol):
    """Provides list prices for calls of simulated backends."""

    def stand_in(self, model: str, tier: str) -> tuple[Price, str] | None:
        """The list price and the name of the model whose price is used for a simulated backend; None if there is
        none."""
        ...


async def usage(
    database: Database,
    *,
    team: str | None = None,
    since: float | None = None,
    until: float | None = None,
    by: str = "model",
    prices: SimulatedCall | None = None,
) -> Report:
    """Report the requests that began in `[since, until)` (Unix seconds). `by`: the dimensions of the groups (see
    `dimensions`).

    Raises ValueError for an invalid `by`, and SQLAlchemyError.
    """
    (report,) = await asyncio.to_thread(_usage, database, [dimensions(by)], team, since, until, prices)
    return report


def _usage(
    database: Database,
    groupings: Sequence[tuple[str, ...]],
    team: str | None,
    since: float | None,
    until: float | None,
    prices: SimulatedCall | None,
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
    prices: SimulatedCall | None = None,
    zone: tzinfo = UTC,
) -> list[Report]:
    """One report for each of `groupings` (results of `dimensions`). If `connection` is a snapshot, the reports agree
    with each other. `zone`: the time zone of days and hours."""
    table, sqlite = of(connection), connection.dialect.name == "sqlite"
    conditions = within(since, until, team, table)
    real = and_(table.c.simulated.is_(False), *conditions)
    lines = [
        _lines(connection, table, real, [column(table, name, sqlite=sqlite, zone=zone) for name in by])
        for by in groupings
    ]
    (total,) = _lines(connection, table, real, []) or [Line()]
    simulated = tuple(simulated_usage(connection, team=team, since=since, until=until, prices=prices))
    return [
        Report(by, since, until, tuple(_readable(rows, by, zone)), total, simulated)
        for by, rows in zip(groupings, lines, strict=True)
    ]


def teams(connection: Connection, *, since: float | None = None, until: float | None = None) -> list[str]:
    """Names of the teams with requests in `[since, until)` (Unix seconds), sorted."""
    asked = and_(entries.c.kind != IDLE, *within(since, until))
    return sorted(connection.scalars(select(entries.c.team).where(asked).distinct()))


def _lines(
    connection: Connection, table: Any, which: ColumnElement[bool], group: Sequence[ColumnElement[Any]]
) -> list[Line]:
    c = table.c
    called, cached, idle = and_(c.attempt > 0, c.kind != IDLE), and_(c.attempt == 0, c.kind != IDLE), c.kind == IDLE
    written = c.cache_write_5m_tokens + c.cache_write_1h_tokens
    other = c.audio_input_tokens + c.image_input_tokens
    made = c.audio_tokens + c.image_tokens
    tokens = c.input_tokens + c.cached_tokens + written + other + c.output_tokens + c.reasoning_tokens + made
    looked_on = and_(c.decided != "", c.decided_pico.is_not(None), c.cost_pico.is_not(None))
    columns = [
        func.count(case((and_(c.alike == 0, c.kind.not_in(_NO_REQUESTS)), c.request_id)).distinct()),
        _sum(c.attempts, called),
        _sum(c.attempts, called, c.outcome == "failed"),
        _sum(c.attempts, called, c.outcome == "interrupted"),
        _sum(c.attempts, cached),
        _sum(tokens, cached),
        _sum(c.input_tokens + other, called),
        _sum(c.cached_tokens, called),
        _sum(written, called),
        _sum(c.output_tokens + made, called),
        _sum(c.reasoning_tokens, called),
        _sum(c.attempts, called, c.estimated.is_(True)),
        _sum(c.attempts, called, or_(and_(c.cost_pico.is_(None), tokens > 0), c.unpriced != "")),
        *pico_sum(c.cost_pico),
        *pico_sum(c.saved_pico),
        *pico_sum(case((idle, c.cost_pico))),
        _sum(c.attempts, looked_on),
        *pico_sum(case((looked_on, c.cost_pico))),
        *pico_sum(case((looked_on, c.decided_pico))),
        _sum(c.decided_ppm, looked_on),
        _sum(c.attempts, c.kind == CHECK),
        *pico_sum(case((c.kind == CHECK, c.cost_pico))),
    ]
    found = connection.execute(select(*group, *columns).where(which).group_by(*group).order_by(*group)).all()
    alike = _alike(connection, which, group) if table is entries else {}
    lines = []
    for row in found:
        key, values = tuple(map(str, row[: len(group)])), row[len(group) :]
        line = Line(key, **dict(zip(COUNTS, _read(values), strict=True)))
        lines.append(replace(line, requests=line.requests + alike.get(key, 0)))
    return lines


def _alike(
    connection: Connection, which: ColumnElement[bool], group: Sequence[ColumnElement[Any]]
) -> dict[tuple[str, ...], int]:
    """Count the requests in rolled-up rows, by group. A rolled-up row represents several requests under one
    `request_id`; its column `alike` has their number."""
    c = entries.c
    named = [column.label(f"g{number}") for number, column in enumerate(group)]
    asked = and_(which, c.alike > 0, c.kind.not_in(_NO_REQUESTS))
    once = select(*named, c.request_id, c.alike).where(asked).distinct().subquery()
    by = [once.c[column.name] for column in named]
    found = connection.execute(select(*by, func.sum(once.c.alike)).group_by(*by)).all()
    return {tuple(map(str, row[:-1])): int(row[-1] or 0) for row in found}


def _read(values: Sequence[Any]) -> Iterator[int]:
    """Yield the value of each column in `COUNTS`. `values`: an SQL row. A sum of money has two values in this row, as
    `pico_sum` computes it."""
    columns = iter(values)
    for name in COUNTS:
        first = next(columns)
        yield whole(first, next(columns)) if name.endswith("_pico") else int(first or 0)


def _sum(what: ColumnElement[Any] | int, *conditions: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.sum(case((and_(*conditions), what), else_=0))


def _readable(lines: list[Line], by: tuple[str, ...], zone: tzinfo) -> list[Line]:
    """Replace the groups of the lines by the texts that reports show, such as dates for days. A group with several tags
    becomes one line for each tag."""
    merged: dict[tuple[str, ...], Line] = {}
    for line in lines:
        for group in written(by, line.group, zone):
            named = replace(line, group=group)
            merged[group] = merged[group].plus(named) if group in merged else named
    return [merged[group] for group in sorted(merged)]


def simulated_usage(
    connection: Connection,
    *,
    team: str | None = None,
    since: float | None = None,
    until: float | None = None,
    prices: SimulatedCall | None = None,
) -> list[Simulated]:
    """The traffic of simulated backends in `[since, until)` (Unix seconds), one line for each model and tier."""
    table = of(connection)
    c = table.c
    which = and_(c.simulated.is_(True), *within(since, until, team, table))
    others = c.audio_input_tokens + c.image_input_tokens
    found = connection.execute(
        select(
            c.model,
            c.tier,
            func.count(c.request_id.distinct()),
            func.sum(c.input_tokens + c.cached_tokens + c.cache_write_5m_tokens + c.cache_write_1h_tokens + others),
            func.sum(c.output_tokens + c.reasoning_tokens + c.audio_tokens + c.image_tokens),
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
