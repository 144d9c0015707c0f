"""Counts requests by tier, by difficulty and by the result of the cache, with one query of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, case, cast, func, select

from gateway.domain.backend import RANK
from gateway.ledger.reports.dimensions import CACHE
from gateway.ledger.reports.formats import dollars
from gateway.ledger.store.entries import IDLE, apart, within
from gateway.ledger.store.sums import pico_sum, whole

_ANSWERS = ("ok", "interrupted")
STEPS = 10
"""The page shows difficulty in this many steps of 0.1. Rolled-up rows contain difficulty in tenths only."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A group of ledger entries: either attempts with equal attributes, or answers from the cache (then `tier` is
    `CACHE`)."""

    tier: str
    cache: str
    kind: str
    outcome: str
    traffic_class: str
    """The kind of question of answers from the cache; empty for attempts."""
    tenths: int | None
    """Difficulty in tenths; None if the request was not graded."""
    attempts: int
    unpriced: int
    """Number of attempts with tokens but no price."""
    unknown: int
    """Number of answers from the cache whose savings are unknown."""
    cost_pico: int
    saved_pico: int

    @property
    def answered(self) -> bool:
        """Whether clients got the answers of these attempts."""
        return self.outcome in _ANSWERS and self.kind == ""


def cells(connection: Connection, team: str, since: float, until: float) -> list[Cell]:
    """The team's ledger entries in `[since, until)` (Unix seconds), grouped into cells. Simulated entries are
    excluded. Several cells may have equal attributes; their numbers add up."""
    return [cell for table in apart(connection) for cell in _cells(connection, table, team, since, until)]


def _cells(connection: Connection, table: Any, team: str, since: float, until: float) -> list[Cell]:
    c: Any = table.c
    tier = case((c.kind == IDLE, IDLE), (c.attempt == 0, CACHE), else_=c.tier)
    hit, kind = (case((c.attempt == 0, column), else_="") for column in (c.cache, c.traffic_class))
    by = (tier, hit, c.kind, c.outcome, kind, _tenths(connection, c))
    inputs = c.input_tokens + c.cached_tokens + c.cache_write_5m_tokens + c.cache_write_1h_tokens
    others = c.audio_input_tokens + c.image_input_tokens + c.audio_tokens + c.image_tokens
    bought = and_(c.attempt > 0, inputs + others + c.output_tokens + c.reasoning_tokens > 0)
    labelled = [column.label(f"g{place}") for place, column in enumerate(by)]
    found = connection.execute(
        select(*labelled, func.sum(c.attempts), _sum(c, and_(bought, c.cost_pico.is_(None))))
        .add_columns(_sum(c, c.saved_pico.is_(None)), *pico_sum(c.cost_pico), *pico_sum(c.saved_pico))
        .where(c.simulated.is_(False), *within(since, until, team, table))
        .group_by(*(column.name for column in labelled))
    ).all()
    return [_cell(*row) for row in found]


def _cell(tier: str, cache: str, kind: str, outcome: str, name: str, tenths: int | None, *sums: Any) -> Cell:
    attempts, unpriced, unknown = map(int, sums[:3])
    money = whole(*sums[3:5]), whole(*sums[5:])
    return Cell(tier, cache, kind, outcome, name, tenths, attempts, unpriced, unknown, *money)


def _tenths(connection: Connection, c: Any) -> ColumnElement[int]:
    rounded = c.difficulty * STEPS + 0.5
    # SQLite may lack FLOOR, PostgreSQL's CAST rounds.
    return cast(rounded if connection.dialect.name == "sqlite" else func.floor(rounded), Integer)


def _sum(c: Any, condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.sum(case((condition, c.attempts), else_=0))


def tiers(found: list[Cell]) -> list[dict[str, Any]]:
    """The figures of each tier, weakest tier first: number of answers, number of answers that a stronger tier replaced,
    attempts without a price, and cost of all attempts."""
    names = {cell.tier for cell in found} - {CACHE}
    return [_tier(name, [cell for cell in found if cell.tier == name]) for name in sorted(names, key=_rank)]


def _tier(name: str, found: list[Cell]) -> dict[str, Any]:
    return {
        "tier": name,
        "answers": sum(cell.attempts for cell in found if cell.answered),
        "escalated": sum(cell.attempts for cell in found if cell.outcome == "escalated" and cell.kind == ""),
        "unpriced": sum(cell.unpriced for cell in found),
        "cost_usd": dollars(sum(cell.cost_pico for cell in found)),
    }


def _rank(tier: str) -> tuple[int, str]:
    return RANK[tier] if tier in RANK else len(RANK), tier


def cache(found: list[Cell]) -> list[dict[str, Any]]:
    """The figures of each kind of cache hit: number of answers, sum of their savings, and number of answers whose
    savings are unknown."""
    return _hits_by(found, lambda cell: cell.cache)


def cache_classes(found: list[Cell]) -> list[dict[str, Any]]:
    """The figures of cache hits for each traffic class: number of answers, sum of their savings, and number of answers
    whose savings are unknown.
    """
    return _hits_by(found, lambda cell: cell.traffic_class)


def _hits_by(found: list[Cell], name: Callable[[Cell], str]) -> list[dict[str, Any]]:
    groups: dict[str, list[Cell]] = {}
    for cell in found:
        if cell.tier == CACHE:
            groups.setdefault(name(cell), []).append(cell)
    return sorted((_hits(*group) for group in groups.items()), key=lambda line: (-line["answers"], line["kind"]))


def _hits(kind: str, found: list[Cell]) -> dict[str, Any]:
    return {
        "kind": kind,
        "answers": sum(cell.attempts for cell in found),
        "unpriced": sum(cell.unknown for cell in found),
        "saved_usd": dollars(sum(cell.saved_pico for cell in found)),
    }


def difficulty(found: list[Cell]) -> list[dict[str, Any]]:
    """The number of answers by tier, for each tenth of difficulty, easiest first. Empty if no request has a grade."""
    graded = [cell for cell in found if cell.answered and cell.tenths is not None and cell.tier != CACHE]
    if not graded:
        return []
    lines = []
    for step in range(STEPS + 1):
        answers: dict[str, int] = {}
        for cell in graded:
            if cell.tenths == step:
                answers[cell.tier] = answers.get(cell.tier, 0) + cell.attempts
        lines.append({"difficulty": step / STEPS, "answers": answers})
    return lines
