"""Compares a provider's invoice with the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, cast, func, or_, select

from gateway.ledger.reports.formats import dollars
from gateway.ledger.reports.invoices import Invoice, plain
from gateway.ledger.store.entries import IDLE, entries, within
from gateway.ledger.store.sums import pico_sum, whole

DAY_S = 86400.0
KINDS = ("matched", "differing", "missing", "extra")
"""The kind of a pair: figures are equal, figures differ, only the invoice has it, only the ledger has it."""


@dataclass(slots=True)
class Sums:
    """The sums of one side of a pair: the invoice's or the ledger's. A sum is None if this side does not have it."""

    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    pico: int | None = None

    def add(self, other: Sums) -> None:
        for name in (entry.name for entry in fields(Sums)):
            more = getattr(other, name)
            if more is not None:
                setattr(self, name, (getattr(self, name) or 0) + more)


@dataclass(frozen=True, slots=True)
class Pair:
    """The figures of the invoice and of the ledger for the same calls: one request id, or one model on one day
    (`2026-01-31 gpt-4o`)."""

    name: str
    invoiced: Sums | None
    booked: Sums | None
    kind: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The comparison of an invoice with the ledger."""

    by: str
    """The unit of the comparison: `request` or `day and model`."""
    pairs: tuple[Pair, ...]
    invoiced: Sums
    booked: Sums
    unpriced: int = 0
    """Number of attempts in the ledger without a known price. They are a part of the difference in USD."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of pairs by kind (`KINDS`)."""


def reconcile(
    connection: Connection, invoice: Invoice, backends: Iterable[str], provider: str, *, tolerance_pico: int = 0
) -> Reconciliation:
    """Compare `invoice` with the ledger's attempts in the invoice's period. `backends`: names of the backends to
    compare. `provider`: attempts whose price comes from this provider's list are compared, too. `tolerance_pico`: the
    allowed difference of two costs.

    The lines are compared by request id if every line has one; otherwise by day and model.
    """
    since, until = invoice.period()
    chosen = _chosen(list(backends), provider, since, until)
    by_request = invoice.by_request
    booked = _by_id(connection, chosen) if by_request else _by_day(connection, chosen)
    invoiced: dict[str, Sums] = defaultdict(Sums)
    for line in invoice.lines:
        name = line.id if by_request else f"{datetime.fromtimestamp(line.at, UTC):%Y-%m-%d} {plain(line.model)}"
        invoiced[name].add(Sums(line.requests, line.input_tokens, line.output_tokens, line.pico))
    pairs = tuple(
        _pair(name, invoiced.get(name), booked.get(name), tolerance_pico) for name in sorted({*invoiced, *booked})
    )
    counts = {kind: sum(pair.kind == kind for pair in pairs) for kind in KINDS}
    by = "request" if by_request else "day and model"
    totals = (_total(invoiced.values()), _total(booked.values()))
    return Reconciliation(by, pairs, totals[0], totals[1], _unpriced(connection, chosen), counts)


def _total(sides: Iterable[Sums]) -> Sums:
    total = Sums()
    for side in sides:
        total.add(side)
    return total


def _pair(name: str, invoiced: Sums | None, booked: Sums | None, tolerance_pico: int) -> Pair:
    if booked is None or invoiced is None:
        return Pair(name, invoiced, booked, "missing" if booked is None else "extra")
    alike = all(
        there is None or abs(there - (here or 0)) <= (tolerance_pico if what == "pico" else 0)
        for what in (entry.name for entry in fields(Sums))
        for there, here in [(getattr(invoiced, what), getattr(booked, what))]
    )
    return Pair(name, invoiced, booked, "matched" if alike else "differing")


def _chosen(backends: Sequence[str], provider: str, since: float, until: float) -> list[Any]:
    c = entries.c
    listed = c.price_source.startswith(f"list {provider}/", autoescape=True)
    asked = [c.attempt > 0, c.kind != IDLE, c.simulated.is_(False)]
    # The provider counts a call on the day on which the call was made. Sums have no waiting time.
    called = [_called_at() >= since, _called_at() < until]
    return [or_(c.backend.in_(backends), listed), *asked, *called, *within(since - DAY_S, until)]


def _called_at() -> ColumnElement[float]:
    called: ColumnElement[float] = entries.c.at + entries.c.waited_ms / 1000.0
    return called


def _tokens() -> tuple[Any, Any]:
    c: Any = entries.c
    written = c.cache_write_5m_tokens + c.cache_write_1h_tokens
    return (
        c.input_tokens + c.cached_tokens + written + c.audio_input_tokens + c.image_input_tokens,
        c.output_tokens + c.reasoning_tokens + c.audio_tokens + c.image_tokens,
    )


def _by_id(connection: Connection, chosen: Sequence[Any]) -> dict[str, Sums]:
    c = entries.c
    sent, came = _tokens()
    query = select(c.request_id, func.sum(c.attempts), func.sum(sent), func.sum(came), *pico_sum(c.cost_pico))
    return _sums(connection, query.where(*chosen).group_by(c.request_id), lambda row: str(row[0]))


def _by_day(connection: Connection, chosen: Sequence[Any]) -> dict[str, Sums]:
    c = entries.c
    sent, came = _tokens()
    days = _called_at() / DAY_S
    # SQLite may lack FLOOR. PostgreSQL's CAST rounds.
    day = cast(days if connection.dialect.name == "sqlite" else func.floor(days), Integer).label("day")
    query = select(day, c.model, func.sum(c.attempts), func.sum(sent), func.sum(came), *pico_sum(c.cost_pico))
    return _sums(
        connection,
        query.where(*chosen).group_by(day, c.model),
        lambda row: f"{datetime.fromtimestamp(int(row[0]) * DAY_S, UTC):%Y-%m-%d} {plain(row[1])}",
    )


def _sums(connection: Connection, query: Any, name: Any) -> dict[str, Sums]:
    """Sum the rows of `query` by `name(row)`. Model names that differ only in date or prefix count as the same
    model."""
    found: dict[str, Sums] = defaultdict(Sums)
    for row in connection.execute(query):
        requests, sent, came, high, low = row[-5:]
        found[name(row)].add(Sums(int(requests), int(sent), int(came), whole(high, low)))
    return found


def _unpriced(connection: Connection, chosen: Sequence[Any]) -> int:
    sent, came = _tokens()
    missing = or_(and_(entries.c.cost_pico.is_(None), sent + came > 0), entries.c.unpriced != "")
    query = select(func.sum(entries.c.attempts)).where(*chosen, missing)
    return int(connection.execute(query).scalar() or 0)


def as_object(found: Reconciliation, *, details: bool = True) -> dict[str, Any]:
    """The comparison as JSON values. A difference is the invoice's figure minus the ledger's figure; null if the
    invoice lacks the figure."""
    pairs = [_object(pair) for pair in found.pairs if pair.kind != "matched"] if details else []
    totals = {"invoiced": _side(found.invoiced), "booked": _side(found.booked)}
    return {
        "by": found.by,
        "counts": found.counts,
        "total": {**totals, "difference": _difference(found.invoiced, found.booked)},
        "unpriced": found.unpriced,
        "pairs": pairs,
    }


def _object(pair: Pair) -> dict[str, Any]:
    return {
        "name": pair.name,
        "kind": pair.kind,
        "invoiced": pair.invoiced and _side(pair.invoiced),
        "booked": pair.booked and _side(pair.booked),
        "difference": _difference(pair.invoiced or Sums(0, 0, 0, 0), pair.booked or Sums(0, 0, 0, 0)),
    }


def _side(sums: Sums) -> dict[str, Any]:
    usd = None if sums.pico is None else dollars(sums.pico)
    tokens = {"input_tokens": sums.input_tokens, "output_tokens": sums.output_tokens}
    return {"requests": sums.requests, **tokens, "usd": usd}


def _difference(invoiced: Sums, booked: Sums) -> dict[str, Any]:
    differ = {
        entry.name: None if there is None else there - (getattr(booked, entry.name) or 0)
        for entry in fields(Sums)
        for there in [getattr(invoiced, entry.name)]
    }
    pico = differ.pop("pico")
    return {**differ, "usd": None if pico is None else dollars(pico)}
