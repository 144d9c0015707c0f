"""Reads spend by day, backend, model and key with one query of the ledger's rows and one query of its sums.

The usage report reads the ledger once for each grouping. The page shows several groupings at once. So this module reads
the ledger only once and adds up the groups itself. A test compares the results with the usage report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date, timedelta
from operator import add
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Integer, and_, case, cast, func, literal, or_, select

from gateway.dashboard import days
from gateway.dashboard.days import Day
from gateway.dashboard.periods import DAY_S, Period, begin_of
from gateway.domain.money.windows import iso, offsets
from gateway.domain.record import FOR_SESSIONS
from gateway.ledger.reports.dimensions import CACHE
from gateway.ledger.reports.formats import NAMES, dollars, figures
from gateway.ledger.reports.report import Line
from gateway.ledger.store.entries import CHECK, IDLE, apart, sums_alone, within
from gateway.ledger.store.sums import pico_sum, whole

HOUR_S = 3600
HOURLY_DAYS = 2
"""Maximum days of a period whose spend is also shown by hour."""
STACKED = 6
"""Maximum number of models or teams that have their own colour in the stacked chart. The others are added up."""
PACE_DAYS = 7
"""The pace of spend is the mean of up to this many past days."""
_EPOCH = date(1970, 1, 1)
_NO_REQUESTS = (IDLE, CHECK, *FOR_SESSIONS)
_OMITTED = ("decided", "undecided_usd", "decided_usd", "decided_adequacy", "cache_tokens")
_FIELDS = (
    *("requests", "attempts", "failed", "interrupted", "cache_answers"),
    *("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"),
    *("estimated", "unpriced", "cost_pico", "saved_pico", "idle_pico", "checks", "checks_pico"),
)
"""The fields of a usage report's line that a group has, in the order of `Group.counts`."""
_FORM = [1, *_FIELDS]
"""The form of a stored day's groups. Increase the number if the same fields get another meaning."""
_COST = _FIELDS.index("cost_pico")
_ZEROS = (0,) * (len(_FIELDS) - 1)


class Group(NamedTuple):
    """The figures of all ledger entries with the same step, team, backend, model and key. `step`: hours or days since
    1970, as clocks in the period's zone show them.

    `counts`: one number for each of `_FIELDS`. It is a tuple, because there may be tens of thousands of groups.
    """

    step: int
    team: str
    backend: str
    model: str
    key: str
    counts: tuple[int, ...]

    @property
    def cost_pico(self) -> int:
        return self.counts[_COST]


def read(
    connection: Connection,
    period: Period,
    team: str | None,
    *,
    by_team: bool = False,
    computed: list[Day] | None = None,
) -> list[Group]:
    """Read all groups of `period`. `by_team`: whether groups are made only by team and day. Simulated entries are
    excluded. Several groups may have the same columns; their counts add up. Days that were computed and could be stored
    are appended to `computed`."""
    tables = apart(connection)
    if _seconds(period, by_team=by_team) == HOUR_S:
        return [group for table in tables for group in _groups(connection, table, period, team, hourly=True)]
    known = days.stored(connection, team or "", period.since, period.until)
    count = days.counter(connection, tables, team)
    found: list[Group] = []
    for date_, since, until in period.spans():
        entries = count(since, until)
        if not any(entries):
            continue
        day = known.get((since, until))
        if day is None or day.entries != entries or day.figures[0] != _FORM:
            part = replace(period, since=since, until=until)
            groups = [one for table in tables for one in _groups(connection, table, part, team, by_team=by_team)]
            day = Day(team or "", since, until, entries, [_FORM, *map(_as_values, groups)])
            if computed is not None and until == begin_of(date_ + timedelta(days=1), period.zone):
                computed.append(day)
        step = (date_ - _EPOCH).days
        found += [_of_values(step, *values) for values in day.figures[1:]]
    return found


def _as_values(group: Group) -> list[str]:
    """A group without its step as JSON values. Its numbers are one text, because some may exceed 64 bits."""
    return [*group[1:5], " ".join(map(str, group.counts))]


def _of_values(step: int, team: str, backend: str, model: str, key: str, counts: str) -> Group:
    return Group(step, team, backend, model, key, tuple(map(int, counts.split())))


def _groups(
    connection: Connection, table: Any, period: Period, team: str | None, *, by_team: bool = False, hourly: bool = False
) -> list[Group]:
    """Query the groups of `period` from `table`. If `hourly` is true, there is a group for each hour; otherwise the
    step of all groups is 0.
    """
    c = table.c
    step = [_whole(connection, _shown(c, period) / HOUR_S)] if hourly else []
    group = [*step, c.team] if by_team else [*step, c.backend, c.model, c.key_id]
    real = and_(c.simulated.is_(False), *within(period.since, period.until, team, table))
    labelled = [column.label(f"g{place}") for place, column in enumerate([*group, _called(c), c.kind, c.outcome])]
    found = connection.execute(
        select(*labelled, *_sums(c, tokens=not by_team)).where(real).group_by(*(column.name for column in labelled))
    ).all()
    rows = (tuple(row) if hourly else (0, *row) for row in found)
    groups = [_group(row, len(group) + (not hourly), by_team=by_team) for row in rows]
    return groups + (_alike(connection, step, real, by_team=by_team) if table is sums_alone else [])


def _shown(c: Any, period: Period) -> ColumnElement[Any]:
    """The SQL expression for the local time at which an entry began, in seconds since 1970. The time zone is that of
    the period. `c`: the columns of the table.
    """
    (_, offset), *changes = offsets(period.zone, period.since, period.until)
    later = [(c.at >= begin, changed) for begin, changed in reversed(changes)]
    shown: ColumnElement[Any] = c.at + (case(*later, else_=offset) if later else offset)
    return shown


def _whole(connection: Connection, value: ColumnElement[Any]) -> ColumnElement[int]:
    # SQLite may lack FLOOR, PostgreSQL's CAST rounds.
    return cast(value if connection.dialect.name == "sqlite" else func.floor(value), Integer)


def _called(c: Any) -> ColumnElement[Any]:
    return case((and_(c.attempt > 0, c.kind != IDLE), 1), else_=0)


def _sums(c: Any, *, tokens: bool) -> list[ColumnElement[Any]]:
    """The SQL sums of a group. If `tokens` is false, the sums of tokens are 0. `c`: the columns of the table."""
    written = c.cache_write_5m_tokens + c.cache_write_1h_tokens
    inputs = c.input_tokens + c.audio_input_tokens + c.image_input_tokens
    outputs = c.output_tokens + c.audio_tokens + c.image_tokens
    every = inputs + c.cached_tokens + written + outputs + c.reasoning_tokens
    unpriced = or_(and_(c.cost_pico.is_(None), every > 0), c.unpriced != "")
    kinds = (inputs, c.cached_tokens, written, outputs, c.reasoning_tokens)
    return [
        func.sum(c.attempts),
        func.sum(case((and_(c.attempt <= 1, c.alike == 0), 1), else_=0)),
        *(func.sum(kind) if tokens else literal(0) for kind in kinds),
        func.sum(case((c.estimated.is_(True), c.attempts), else_=0)),
        func.sum(case((unpriced, c.attempts), else_=0)),
        *pico_sum(c.cost_pico),
        *pico_sum(c.saved_pico),
    ]


def _group(row: tuple[Any, ...], width: int, *, by_team: bool) -> Group:
    called, kind, outcome = row[width : width + 3]
    attempts, first, *counts = (int(value or 0) for value in row[width + 3 : -4])
    cost, saved = whole(*row[-4:-2]), whole(*row[-2:])
    checks = attempts if called and kind == CHECK else 0
    values = (
        0 if kind in _NO_REQUESTS else first,
        attempts if called else 0,
        attempts if called and outcome == "failed" else 0,
        attempts if called and outcome == "interrupted" else 0,
        0 if called or kind == IDLE else attempts,
        *(counts if called else (0,) * len(counts)),
        cost,
        saved,
        cost if kind == IDLE else 0,
        checks,
        cost if checks else 0,
    )
    if by_team:
        return Group(int(row[0]), row[1], "", "", "", values)
    return Group(int(row[0]), "", row[1] or CACHE, row[2] or CACHE, row[3], values)


def _alike(connection: Connection, step: list[Any], real: ColumnElement[bool], *, by_team: bool) -> list[Group]:
    """The number of requests in rolled-up entries, as groups without other figures. One `request_id` in these entries
    represents several requests; the column `alike` has their number. `step`: the SQL expression for the step, or
    nothing. `real`: condition that selects the entries.
    """
    c = sums_alone.c
    wanted = and_(real, c.alike > 0, c.kind.not_in(_NO_REQUESTS))
    which = c.team if by_team else c.key_id
    at = step[0] if step else literal(0)
    once = select(at.label("step"), which.label("which"), c.request_id, c.alike).where(wanted).distinct().subquery()
    o = once.c
    found = connection.execute(select(o.step, o.which, func.sum(o.alike)).group_by(o.step, o.which))
    return [
        Group(int(at), name if by_team else "", "", "", "" if by_team else name, (int(requests), *_ZEROS))
        for at, name, requests in found
    ]


def total(found: Iterable[Line]) -> Line:
    """Add up lines of the usage report. No request may belong to two of them, because it would be counted twice."""
    summed = Line()
    for line in found:
        summed = summed.plus(line)
    return summed


def lines(groups: Iterable[Group], name: Callable[[Group], str]) -> dict[str, Line]:
    """Add up the groups by name: name → sum, sorted by name. A group without a name only counts requests, and is left
    out."""
    sums: dict[str, list[int]] = {}
    for group in groups:
        if called := name(group):
            known = sums.get(called)
            sums[called] = list(group.counts) if known is None else list(map(add, known, group.counts))
    return {called: _line(sums[called]) for called in sorted(sums)}


def _line(counts: Iterable[int]) -> Line:
    values: dict[str, Any] = dict(zip(_FIELDS, counts, strict=True))
    return Line(**values)


def as_values(line: Line) -> dict[str, Any]:
    """The figures as JSON values with the names of the usage report. Money is exact decimal text."""
    return {name: value for name, value in zip(NAMES, figures(line), strict=True) if name not in _OMITTED}


def rows(by: str, found: dict[str, Line]) -> list[dict[str, Any]]:
    return [{by: name, **as_values(line)} for name, line in found.items()]


def days_of(period: Period, groups: Iterable[Group], *, by_team: bool = False) -> Callable[[Group], str]:
    """Make a function that returns the day of a group, such as `2026-01-31`."""
    seconds = _seconds(period, by_team=by_team)
    names = {step: iso(step * seconds)[:10] for step in {group.step for group in groups}}
    return lambda group: names[group.step]


def hour_of(group: Group) -> str:
    return f"{iso(group.step * HOUR_S)[:13]}:00"


def _seconds(period: Period, *, by_team: bool) -> int:
    return HOUR_S if period.days <= HOURLY_DAYS and not by_team else DAY_S


def stack(groups: list[Group], step: Callable[[Group], str], name: Callable[[Group], str]) -> dict[str, Any]:
    """Spend by step and name, for a stacked chart: `{"names", "steps": {step: [USD by name]}}`. The names with the
    highest spend come first. If there are more than `STACKED`, the last name is `""` and stands for all others."""
    sums: dict[str, int] = {}
    cells: dict[tuple[str, str], int] = {}
    for group in groups:
        if group.cost_pico and (called := name(group)):
            sums[called] = sums.get(called, 0) + group.cost_pico
            cell = step(group), called
            cells[cell] = cells.get(cell, 0) + group.cost_pico
    names = sorted(sums, key=lambda one: (-sums[one], one))
    top, others = names[:STACKED], names[STACKED:]
    steps = {}
    for at in sorted({at for at, _ in cells}):
        parts = [cells.get((at, one), 0) for one in top]
        rest = [sum(cells.get((at, one), 0) for one in others)] if others else []
        steps[at] = [dollars(pico) for pico in (*parts, *rest)]
    return {"names": top + ([""] if others else []), "steps": steps}


def pace(groups: list[Group], period: Period, *, by_team: bool = False) -> dict[str, Any] | None:
    """Estimate the spend at the end of this calendar month: each remaining day costs the mean of the last days. None if
    the period is not this month."""
    if not period.current_month:
        return None
    seconds = _seconds(period, by_team=by_team)
    day = max(period.first, period.today - timedelta(days=PACE_DAYS - 1))
    step = (day - _EPOCH).days * DAY_S // seconds
    elapsed, left = max(period.now - begin_of(day, period.zone), DAY_S), period.month_end - period.now
    spent = sum(group.cost_pico for group in groups)
    recent = sum(group.cost_pico for group in groups if group.step >= step)
    return {
        "days": round(elapsed / DAY_S, 1),
        "until": period.last_of_month.isoformat(),
        "usd": dollars(spent + recent * int(left) // int(elapsed)),
    }
