"""Finds ledger rows whose cost is unknown, incomplete or suspiciously 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, literal, or_, select, true

from gateway.domain.backend import Backend
from gateway.domain.money.unpriced import TIER, fees_of
from gateway.domain.protocols import PriceList
from gateway.ledger.rows import FIELDS, TOKENS, Row
from gateway.ledger.store.entries import entries, newest, within
from gateway.state.sql.tables import ledger

PAGE = 1000
"""Maximum number of rows that are in memory at a time."""
_ROW = [ledger.c[name] for name in FIELDS]
_TOKENS: ColumnElement[Any] = sum((ledger.c[name] for name in TOKENS), start=literal(0))
unpriced = and_(ledger.c.cost_pico.is_(None), _TOKENS > 0)
"""Condition for rows without a price. Their cost is missing from every total."""
tier_unknown = and_(ledger.c.cost_pico.is_not(None), ledger.c.unpriced.contains(TIER, autoescape=True))
"""Condition for rows whose service tier had no price. Their cost was computed with the price of the most expensive
tier."""
repriceable = or_(unpriced, tier_unknown)
free = and_(ledger.c.cost_pico == 0, _TOKENS > 0)
"""Condition for rows whose cost is 0. This is suspicious if the backend has a price above 0."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one backend and one model that have the same problem."""

    backend: str
    model: str
    why: str
    """The problem. `unpriced`: the rows have no price. `units`: fees or a service tier have no price. `zero`: the cost
    is 0 although the backend has a price."""
    rows: int
    tokens: int
    first_at: float
    last_at: float
    price_source: str = ""
    """Source of the price that is known now; empty if no price is known."""
    units: str = ""
    """Units without a price and their sums, such as `web_search:12,service_tier=scale`."""


def which(
    *, why: ColumnElement[bool], model: str | None = None, since: float | None = None, until: float | None = None
) -> ColumnElement[bool]:
    """The SQL condition for the newest ledger rows of calls to backends. A row that a newer row supersedes is excluded.
    `why`: a further condition. `model`: name of a model or of a backend."""
    c = ledger.c
    return and_(
        *(newest, c.simulated.is_(False), c.attempt > 0, why),
        *([(c.model == model) | (c.backend == model)] if model is not None else []),
        *([c.at >= since] if since is not None else []),
        *([c.at < until] if until is not None else []),
    )


def groups(
    connection: Connection,
    prices: PriceList,
    backends: Mapping[str, Backend],
    *,
    since: float | None = None,
    until: float | None = None,
) -> list[Group]:
    """All groups of rows with a problem. The order is: rows without a price (`unpriced`), rows with fees or a service
    tier without a price (`units`), rows with a suspicious cost of 0 (`zero`). Within a problem, the group with most
    tokens comes first. Only `units` includes rows that were rolled up into sums."""
    c, found = ledger.c, list[Group]()
    for why, condition in (("unpriced", unpriced), ("zero", free)):
        columns = (func.count(), func.sum(_TOKENS), func.min(c.at), func.max(c.at))
        rows = connection.execute(
            select(c.backend, c.model, *columns)
            .where(which(why=condition, since=since, until=until))
            .group_by(c.backend, c.model)
            .order_by(func.sum(_TOKENS).desc(), c.backend, c.model)
        )
        for backend, model, count, tokens, first, last in rows:
            price = prices.price(backends[backend]) if backend in backends else None
            if why == "unpriced" or (price is not None and not price.free):
                source = "" if price is None else price.source
                found.append(Group(backend, model, why, count, int(tokens), first, last, source))
        if why == "unpriced":
            found += _of_units(connection, since, until)
    return found


def _of_units(connection: Connection, since: float | None, until: float | None) -> list[Group]:
    """The groups of rows whose fees or service tier have no price, one for each backend and model."""
    c = entries.c
    tokens: ColumnElement[Any] = sum((c[name] for name in TOKENS), start=literal(0))
    rows = connection.execute(
        select(c.backend, c.model, c.unpriced, func.sum(c.attempts), func.sum(tokens), func.min(c.at), func.max(c.at))
        .where(c.simulated.is_(False), c.attempt > 0, c.unpriced != "", *within(since, until))
        .group_by(c.backend, c.model, c.unpriced)
        .order_by(c.backend, c.model, c.unpriced)
    ).all()
    found: dict[tuple[str, str], Group] = {}
    for backend, model, units, count, summed, first, last in rows:
        one = Group(backend, model, "units", int(count), int(summed), first, last, units=_times(units, int(count)))
        other = found.get((backend, model))
        found[backend, model] = one if other is None else _together(other, one)
    return sorted(found.values(), key=lambda one: (-one.tokens, one.backend, one.model))


def _together(one: Group, other: Group) -> Group:
    return replace(
        one,
        rows=one.rows + other.rows,
        tokens=one.tokens + other.tokens,
        first_at=min(one.first_at, other.first_at),
        last_at=max(one.last_at, other.last_at),
        units=_written([*_read(one.units), *_read(other.units)]),
    )


def _times(units: str, count: int) -> str:
    """`units`, a text such as `web_search:12`, with each number multiplied by `count`."""
    return _written([(name, of_one * count) for name, of_one in _read(units)])


def _read(units: str) -> list[tuple[str, int]]:
    """Parse a text such as `web_search:12,service_tier=scale` into pairs (name, number). A service tier has no number
    in the text; its pair has 0."""
    tiers = [(part, 0) for part in units.split(",") if part.startswith(TIER)]
    return [*fees_of(units), *tiers]


def _written(units: list[tuple[str, int]]) -> str:
    summed = Counter[str]()
    for name, count in units:
        summed[name] += count
    return ",".join(f"{name}:{count}" if count else name for name, count in sorted(summed.items()))


def count(connection: Connection, condition: ColumnElement[bool]) -> int:
    """The number of rows for which `condition` holds. Rows that were rolled up into sums are not counted."""
    return int(connection.scalar(select(func.count()).select_from(ledger).where(condition)) or 0)


def rows(connection: Connection, condition: ColumnElement[bool]) -> Iterator[Row]:
    """Rows for which `condition` (a result of `which`) holds, oldest first."""
    c, at, id = ledger.c, float("-inf"), ""
    page: Sequence[Any] = ()
    while not id or len(page) == PAGE:
        after = (c.at > at) | ((c.at == at) & (c.id > id)) if id else true()
        page = connection.execute(select(*_ROW).where(condition, after).order_by(c.at, c.id).limit(PAGE)).all()
        if not page:
            return
        yield from (Row(*row) for row in page)
        at, id = page[-1].at, page[-1].id
